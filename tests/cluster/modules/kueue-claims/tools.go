//go:build tools

// Package kueue pins the program that tests/cluster builds from this module.
package kueue

import _ "sigs.k8s.io/kueue/cmd/kueue"
