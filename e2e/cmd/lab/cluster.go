package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// cluster is the part of a Cluster of cluster.karmada.io that a demo looks at.
type cluster struct {
	Spec struct {
		APIEndpoint string `json:"apiEndpoint"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func getCluster(ctx context.Context, client kubernetes.Interface, name string) (cluster, error) {
	var c cluster
	data, err := client.CoreV1().RESTClient().Get().
		AbsPath("/apis/cluster.karmada.io/v1alpha1/clusters", name).DoRaw(ctx)
	if err != nil {
		return c, fmt.Errorf("read Cluster %s: %w", name, err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("read Cluster %s: %w", name, err)
	}
	return c, nil
}

func (c cluster) ready() bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return false
}

func (c cluster) describe() string {
	if len(c.Status.Conditions) == 0 {
		return "none yet"
	}
	var parts []string
	for _, condition := range c.Status.Conditions {
		parts = append(parts, fmt.Sprintf("%s=%s %s", condition.Type, condition.Status, condition.Message))
	}
	return strings.Join(parts, "; ")
}

// lockDemo keeps two demos out of one folder; the kernel drops the lock with the
// process.
func lockDemo(dir string) (func(), error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the demo's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("the demo's folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another `lab demo` is at work in %s; wait for it or stop it", dir), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
