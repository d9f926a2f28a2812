// The NVIDIA container runtime of a node whose GPUs are simulated: runc, after the device's files and variables
// have been added to the container's specification, as nvidia-container-runtime does with the driver's.
//
// Which devices exist: /run/sluice-test/gpus/<uuid>.sock. The libraries: /run/sluice-test/lib.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	root          = "/run/sluice-test"
	librariesAt   = "/usr/lib/x86_64-linux-gnu"
	socketsAt     = "/run/sluice-sim"
	visible       = "NVIDIA_VISIBLE_DEVICES"
	socketsEnv    = "SLUICE_SIM_SOCKET"
	labelEnv      = "SLUICE_SIM_LABEL"
	annotationsOf = "io.kubernetes.cri."
)

func main() {
	runc, err := exec.LookPath("runc")
	if err == nil {
		err = edit(os.Args[1:])
	}
	if err == nil {
		err = syscall.Exec(runc, append([]string{"runc"}, os.Args[1:]...), os.Environ())
	}
	complain(os.Args[1:], err)
	os.Exit(1)
}

// edit changes what runc is about to read; commands that start no process are left alone.
func edit(args []string) error {
	switch {
	case slices.Contains(args, "create"):
		return editFile(filepath.Join(valueOf(args, "--bundle"), "config.json"), addDevices)
	case slices.Contains(args, "exec"):
		container := args[len(args)-1]
		return editFile(valueOf(args, "--process"), func(process map[string]any) (bool, error) {
			return addVariablesOf(container, process)
		})
	}
	return nil
}

func addDevices(spec map[string]any) (bool, error) {
	process, _ := spec["process"].(map[string]any)
	devices, err := devicesFor(variable(process, visible))
	if err != nil || len(devices) == 0 {
		return false, err
	}
	mounts, _ := spec["mounts"].([]any)
	var sockets []string
	for _, uuid := range devices {
		socket := filepath.Join(socketsAt, uuid+".sock")
		sockets = append(sockets, socket)
		mounts = append(mounts, bind(filepath.Join(root, "gpus", uuid+".sock"), socket))
	}
	libraries, err := os.ReadDir(filepath.Join(root, "lib"))
	if err != nil {
		return false, err
	}
	for _, library := range libraries {
		mounts = append(mounts, bind(filepath.Join(root, "lib", library.Name()), filepath.Join(librariesAt, library.Name())))
	}
	spec["mounts"] = mounts
	annotations, _ := spec["annotations"].(map[string]any)
	label := fmt.Sprintf("%v/%v/%v", annotations[annotationsOf+"sandbox-namespace"],
		annotations[annotationsOf+"sandbox-name"], annotations[annotationsOf+"container-name"])
	set(process, socketsEnv, strings.Join(sockets, ","))
	set(process, labelEnv, label)
	return true, nil
}

// addVariablesOf gives an exec what create gave the container: containerd remembers the older variables.
// The shim works in the bundle of the pod's first container; the others' lie beside it.
func addVariablesOf(container string, process map[string]any) (bool, error) {
	text, err := os.ReadFile(filepath.Join("..", container, "config.json"))
	if err != nil {
		return false, err
	}
	var spec struct{ Process map[string]any }
	if err := json.Unmarshal(text, &spec); err != nil {
		return false, err
	}
	if variable(spec.Process, socketsEnv) == "" {
		return false, nil
	}
	for _, name := range []string{socketsEnv, labelEnv} {
		set(process, name, variable(spec.Process, name))
	}
	return true, nil
}

// devicesFor resolves the variable's value as the real runtime does: UUIDs, indices, all, or none.
func devicesFor(value string) ([]string, error) {
	if value == "" || value == "void" || value == "none" {
		return nil, nil
	}
	paths, err := filepath.Glob(filepath.Join(root, "gpus", "*.sock"))
	if err != nil {
		return nil, err
	}
	var all []string
	for _, path := range paths {
		all = append(all, strings.TrimSuffix(filepath.Base(path), ".sock"))
	}
	if value == "all" {
		return all, nil
	}
	var chosen []string
	for _, name := range strings.Split(value, ",") {
		if index, err := strconv.Atoi(name); err == nil && index >= 0 && index < len(all) {
			name = all[index]
		}
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("%s=%s: unknown device %q, this node has %s", visible, value, name, strings.Join(all, ", "))
		}
		chosen = append(chosen, name)
	}
	return chosen, nil
}

func bind(source, destination string) map[string]any {
	return map[string]any{"source": source, "destination": destination, "type": "bind",
		"options": []string{"bind", "ro", "nosuid", "nodev"}}
}

func variable(process map[string]any, name string) string {
	env, _ := process["env"].([]any)
	for _, entry := range slices.Backward(env) {
		if value, found := strings.CutPrefix(fmt.Sprint(entry), name+"="); found {
			return value
		}
	}
	return ""
}

func set(process map[string]any, name, value string) {
	env, _ := process["env"].([]any)
	process["env"] = append(env, name+"="+value)
}

func editFile(path string, change func(map[string]any) (bool, error)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber() // limits do not survive a float
	var document map[string]any
	if err := decoder.Decode(&document); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	changed, err := change(document)
	if err != nil || !changed {
		return err
	}
	if text, err = json.Marshal(document); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func valueOf(args []string, flag string) string {
	for at, arg := range args {
		if arg == flag && at+1 < len(args) {
			return args[at+1]
		}
		if value, found := strings.CutPrefix(arg, flag+"="); found {
			return value
		}
	}
	return ""
}

// complain tells the reason where the shim looks for it: in runc's log, as runc would.
func complain(args []string, err error) {
	fmt.Fprintln(os.Stderr, "nvidia-runtime:", err)
	if log := valueOf(args, "--log"); log != "" {
		line, _ := json.Marshal(map[string]string{"level": "error", "msg": "nvidia-runtime: " + err.Error()})
		if file, failed := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); failed == nil {
			fmt.Fprintln(file, string(line))
			file.Close()
		}
	}
}
