// Program autoscaler tells what an autoscaler decides about a pod, by the filters of kube-scheduler.
//
// Cluster Autoscaler runs these plugins with their default configuration and calls no extender (its simulator, plugin_runner.go). Its own
// module is not on the Go proxy, so this program makes the same calls. What it does to a node of a group to get the template of a new one
// (node_info_utils.go) is in template().
//
// Its input is a JSON object with the pending pod, all nodes and all bound pods. Its output names the nodes on which the pod fits, and those
// of which a new copy would take it. An autoscaler adds a node if the first list is empty and the second is not.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type cluster struct {
	Pod   *v1.Pod    `json:"pod"`
	Nodes []*v1.Node `json:"nodes"`
	Pods  []*v1.Pod  `json:"pods"`
}

type decision struct {
	Existing []string `json:"existing"`
	New      []string `json:"new"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "autoscaler:", err)
		os.Exit(1)
	}
}

func run() error {
	var given cluster
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return fmt.Errorf("reading the cluster from standard input: %w", err)
	}
	found := decision{Existing: []string{}, New: []string{}}
	for _, node := range given.Nodes {
		reason, err := refusal(given.Pod, node, given.Nodes, given.Pods)
		if err != nil {
			return err
		}
		if reason == "" {
			found.Existing = append(found.Existing, node.Name)
		}
		fresh := template(node)
		if reason, err = refusal(given.Pod, fresh, append([]*v1.Node{fresh}, given.Nodes...), given.Pods); err != nil {
			return err
		}
		if reason == "" {
			found.New = append(found.New, node.Name)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// template is the node that Cluster Autoscaler expects from the group of an existing one: the same labels and amounts, another name, and
// no pods but those of DaemonSets.
func template(node *v1.Node) *v1.Node {
	fresh := node.DeepCopy()
	fresh.Name = "template-node-for-" + node.Name
	fresh.Labels["kubernetes.io/hostname"] = fresh.Name
	return fresh
}

// refusal is the reason for which a filter refuses the pod on one of the nodes, where the others are bound. It is empty if all accept it.
func refusal(pod *v1.Pod, node *v1.Node, nodes []*v1.Node, others []*v1.Pod) (string, error) {
	ctx := context.Background()
	metrics.Register()
	client, err := kubernetes.NewForConfig(&rest.Config{})
	if err != nil {
		return "", err
	}
	config, err := latest.Default()
	if err != nil {
		return "", err
	}
	snapshot := cache.NewSnapshot(others, nodes)
	filters, err := runtime.NewFramework(ctx, plugins.NewInTreeRegistry(), &config.Profiles[0],
		runtime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)), runtime.WithSnapshotSharedLister(snapshot))
	if err != nil {
		return "", err
	}
	state := framework.NewCycleState()
	if _, status, _ := filters.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		return status.AsError().Error(), nil
	}
	info, err := snapshot.NodeInfos().Get(node.Name)
	if err != nil {
		return "", err
	}
	if status := filters.RunFilterPlugins(ctx, state, pod, info); !status.IsSuccess() {
		return status.AsError().Error(), nil
	}
	return "", nil
}
