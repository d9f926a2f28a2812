//go:build tools

// Package jobcontrollers pins the programs that tests/cluster builds from this module.
package jobcontrollers

import (
	_ "sigs.k8s.io/jobset"
	_ "sigs.k8s.io/lws/cmd"
)
