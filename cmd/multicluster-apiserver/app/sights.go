package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

const (
	// sightLimit bounds one question.
	sightLimit  = 5 * time.Second
	unownedPage = 500
)

// sights is what the engine asks about the objects of all clusters.
type sights struct{ client kubernetes.Interface }

func newSights(loopback *rest.Config) (sights, error) {
	client, err := kubernetes.NewForConfig(proxy.FleetConfig(loopback))
	if err != nil {
		return sights{}, fmt.Errorf("client of the endpoint: %w", err)
	}
	return sights{client}, nil
}

// unowned asks for what a new workload of a kind would adopt.
func (s sights) unowned(kind, namespace, selector string) map[string]int32 {
	ctx, cancel := context.WithTimeout(context.Background(), sightLimit)
	defer cancel()
	if kind == "Deployment" {
		sets, err := s.client.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: unownedPage})
		if err != nil {
			klog.Background().V(1).Info("ReplicaSets to adopt are not known", "namespace", namespace, "selector", selector, "err", err)
			return nil
		}
		return unownedSets(sets.Items)
	}
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: unownedPage})
	if err != nil {
		klog.Background().V(1).Info("Pods to adopt are not known", "namespace", namespace, "selector", selector, "err", err)
		return nil
	}
	return unowned(list.Items)
}

// unownedSets counts, per cluster, the replicas of ReplicaSets that have no
// controller.
func unownedSets(sets []appsv1.ReplicaSet) map[string]int32 {
	counts := map[string]int32{}
	for i := range sets {
		s := &sets[i]
		if cluster := s.Labels[cache.ClusterLabel]; cluster != "" && s.DeletionTimestamp == nil && metav1.GetControllerOf(s) == nil {
			counts[cluster] += ptr.Deref(s.Spec.Replicas, 1)
		}
	}
	return counts
}

// node finds a Node by the name under which it is served.
func (s sights) node(served string) (cluster, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), sightLimit)
	defer cancel()
	node, err := s.client.CoreV1().Nodes().Get(ctx, served, metav1.GetOptions{})
	if err != nil {
		return "", "" // the member's scheduler says what it thinks of the name
	}
	return node.Labels[cache.ClusterLabel], cmp.Or(node.Annotations[cache.OriginalNameAnnotation], served)
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
