package main

import (
	"encoding/json"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const recorded = "../../../../../crates/scheduler/src/extender/tests/recorded/scale_up.json"

// pods are a pod as a user writes it, as the webhook completes it, and the scale-up pod that the extender makes of it. Tests in Rust
// compare them with what the webhook and the extender do.
type pods struct {
	User    *v1.Pod `json:"user"`
	Waiting *v1.Pod `json:"waiting"`
	ScaleUp *v1.Pod `json:"scaleUp"`
}

func read(t *testing.T) pods {
	t.Helper()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var found pods
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// gpuNode is a node with eight GPUs as Sluice's agent and GKE describe it.
func gpuNode(name string) *v1.Node {
	amounts := v1.ResourceList{
		"cpu": resource.MustParse("64"), "memory": resource.MustParse("512Gi"), "pods": resource.MustParse("110"),
		"sluice.dev/gpu": resource.MustParse("80"), "sluice.dev/milli": resource.MustParse("8k"), "sluice.dev/memory-mib": resource.MustParse("600k"),
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"kubernetes.io/hostname": name, "sluice.dev/gpu.present": "true", "sluice.dev/gpu.model.NVIDIA-H100": "true",
		}},
		Spec:   v1.NodeSpec{Taints: []v1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: v1.TaintEffectNoSchedule}}},
		Status: v1.NodeStatus{Capacity: amounts, Allocatable: amounts},
	}
}

// bound is a pod like the waiting one, with another share, on a node.
func bound(waiting *v1.Pod, name, node, milli string) *v1.Pod {
	pod := waiting.DeepCopy()
	pod.Name, pod.UID, pod.Spec.NodeName = name, "", node
	for _, list := range []v1.ResourceList{pod.Spec.Containers[0].Resources.Requests, pod.Spec.Containers[0].Resources.Limits} {
		list["sluice.dev/milli"] = resource.MustParse(milli)
	}
	return pod
}

// fits tells whether the pod passes all filters on the node, and logs the reason if not.
func fits(t *testing.T, pod *v1.Pod, node *v1.Node, others ...*v1.Pod) bool {
	t.Helper()
	reason, err := refusal(pod, node, []*v1.Node{node}, others)
	if err != nil {
		t.Fatal(err)
	}
	if reason != "" {
		t.Logf("%s on %s: %s", pod.Name, node.Name, reason)
	}
	return reason == ""
}

// Eight GPUs with 0.2 free each.
func fragmented(waiting *v1.Pod) (*v1.Node, []*v1.Pod) {
	var full []*v1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		full = append(full, bound(waiting, name, "node-a", "800"))
	}
	return gpuNode("node-a"), full
}

func TestAutoscalerAddsNoNodeForThePodItself(t *testing.T) {
	pods := read(t)
	node, full := fragmented(pods.Waiting)
	if !fits(t, pods.Waiting, node, full...) {
		t.Error("the sums of the node do not hide the lack of room: the scale-up pod is not needed")
	}
}

func TestScaleUpPodFitsOnANewNodeAndNotOnTheFragmentedOne(t *testing.T) {
	pods := read(t)
	node, full := fragmented(pods.Waiting)
	if fits(t, pods.ScaleUp, node, full...) {
		t.Error("the autoscaler finds room on the existing node, and adds none")
	}
	if !fits(t, pods.ScaleUp, template(node)) {
		t.Error("the autoscaler finds that a new node does not help")
	}
	if !fits(t, pods.Waiting, template(node)) {
		t.Error("the pod itself does not fit on the new node")
	}
}

func TestScaleUpPodsOfSeveralPodsShareANewNode(t *testing.T) {
	pods := read(t)
	fresh := template(gpuNode("node-a"))
	other := pods.ScaleUp.DeepCopy()
	other.Name, other.Spec.NodeName = "other", fresh.Name
	if !fits(t, pods.ScaleUp, fresh, other) {
		t.Error("each scale-up pod gets a node of its own")
	}
}

func TestNodesOfAnotherModelAreNotAdded(t *testing.T) {
	pods := read(t)
	small := template(gpuNode("node-a"))
	delete(small.Labels, "sluice.dev/gpu.model.NVIDIA-H100")
	small.Labels["sluice.dev/gpu.model.NVIDIA-L4"] = "true"
	for _, pod := range []*v1.Pod{pods.Waiting, pods.ScaleUp} {
		if fits(t, pod, small) {
			t.Errorf("%s would get a node without the model that it asks for", pod.Name)
		}
	}
}

func TestTemplateFromZeroNodesNeedsEachResource(t *testing.T) {
	pods := read(t)
	declared := template(gpuNode("node-a"))
	if !fits(t, pods.Waiting, declared) {
		t.Error("the documented labels and amounts are not enough")
	}
	for _, name := range []v1.ResourceName{"sluice.dev/gpu", "sluice.dev/milli", "sluice.dev/memory-mib"} {
		lacking := template(gpuNode("node-a"))
		delete(lacking.Status.Allocatable, name)
		if fits(t, pods.Waiting, lacking) {
			t.Errorf("a template without %s is enough", name)
		}
	}
}

func TestTaintOfGpuNodesKeepsOnlyPodsAwayThatTheWebhookDidNotComplete(t *testing.T) {
	pods := read(t)
	if fits(t, pods.User, gpuNode("node-a")) {
		t.Error("the pod has tolerations before the webhook: the test proves nothing")
	}
	if !fits(t, pods.Waiting, gpuNode("node-a")) {
		t.Error("the webhook added no toleration")
	}
}
