package app

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

const (
	// unownedLimit bounds a question about the Pods of one selector.
	unownedLimit = 5 * time.Second
	unownedPage  = 500
)

// unownedPods asks the endpoint for the Pods that a new ReplicaSet would adopt.
func unownedPods(loopback *rest.Config) (func(namespace, selector string) map[string]int32, error) {
	client, err := kubernetes.NewForConfig(proxy.FleetConfig(loopback))
	if err != nil {
		return nil, fmt.Errorf("client of the endpoint: %w", err)
	}
	return func(namespace, selector string) map[string]int32 {
		ctx, cancel := context.WithTimeout(context.Background(), unownedLimit)
		defer cancel()
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: unownedPage})
		if err != nil {
			klog.Background().V(1).Info("Pods to adopt are not known", "namespace", namespace, "selector", selector, "err", err)
			return nil
		}
		return unowned(list.Items)
	}, nil
}

// unowned counts, per cluster, the Pods that live and have no controller.
func unowned(pods []corev1.Pod) map[string]int32 {
	counts := map[string]int32{}
	for i := range pods {
		p := &pods[i]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || p.DeletionTimestamp != nil
		if cluster := p.Labels[cache.ClusterLabel]; cluster != "" && !ended && metav1.GetControllerOf(p) == nil {
			counts[cluster]++
		}
	}
	return counts
}
