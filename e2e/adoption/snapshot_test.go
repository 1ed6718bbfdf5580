package adoption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

var (
	deployments  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefulSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	daemonSets   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	services     = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	claims       = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	ingresses    = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	jobs         = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
	cronJobs     = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}
	autoscalers  = schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}
	bindings     = schema.GroupVersionResource{Group: "work.karmada.io", Version: "v1alpha2", Resource: "resourcebindings"}
)

var adoptable = []schema.GroupVersionResource{
	deployments, statefulSets, daemonSets, configMaps, secrets, services, claims, ingresses, jobs, cronJobs, autoscalers,
}

type cluster interface {
	Client() (kubernetes.Interface, error)
	RESTConfig() (*rest.Config, error)
}

func dynamicOf(t testing.TB, c cluster) dynamic.Interface {
	t.Helper()
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// pods are the Pods of a namespace with all that a restart would change.
func pods(ctx context.Context, client kubernetes.Interface, ns string) (map[string]string, error) {
	list, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		p := &list.Items[i]
		says := []string{string(p.UID), string(p.Status.Phase), fmt.Sprint(p.DeletionTimestamp)}
		for _, c := range p.Status.ContainerStatuses {
			says = append(says, fmt.Sprint(c.Name, c.RestartCount, c.State))
		}
		out[p.Name] = strings.Join(says, " ")
	}
	return out, nil
}

func mustPods(t testing.TB, m *lab.Member, ns string) map[string]string {
	t.Helper()
	out, err := pods(t.Context(), labtest.Client(t, m), ns)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// samePods fails the test unless exactly the same Pods run as before.
func samePods(t testing.TB, m *lab.Member, ns string, before map[string]string) {
	t.Helper()
	after := mustPods(t, m, ns)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("%s: Pod %s was\n  %s\nand is\n  %s", m.Name(), name, before[name], after[name])
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s: Pod %s is new", m.Name(), name)
		}
	}
}

// objects are the UIDs of what can be adopted in a namespace, by
// "resource/name".
func objects(t testing.TB, m cluster, ns string) map[string]*unstructured.Unstructured {
	t.Helper()
	client := dynamicOf(t, m)
	out := map[string]*unstructured.Unstructured{}
	for _, gvr := range adoptable {
		list, err := client.Resource(gvr).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			if u.GetLabels()["isthmus.dev/cluster"] != "" {
				continue // the endpoint serves the member's object, there is no template
			}
			if u.GetName() == "kube-root-ca.crt" || metav1.GetControllerOf(u) != nil {
				continue
			}
			out[gvr.Resource+"/"+u.GetName()] = u
		}
	}
	return out
}

// settled waits until as many Pods run as are wanted and nothing is on its way.
func settled(t testing.TB, m *lab.Member, ns string) map[string]string {
	t.Helper()
	client := labtest.Client(t, m)
	var last map[string]string
	labtest.Eventually(t, 2*time.Minute, func(ctx context.Context) error {
		list, err := client.AppsV1().Deployments(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			d := &list.Items[i]
			if s := d.Status; s.ObservedGeneration < d.Generation || s.Replicas != *d.Spec.Replicas || s.AvailableReplicas != s.Replicas || s.UpdatedReplicas != s.Replicas {
				return fmt.Errorf("Deployment %s: %d wanted, %+v", d.Name, *d.Spec.Replicas, s)
			}
		}
		scalers, err := client.AutoscalingV2().HorizontalPodAutoscalers(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range scalers.Items {
			if h := &scalers.Items[i]; h.Status.DesiredReplicas < *h.Spec.MinReplicas || h.Status.CurrentReplicas < *h.Spec.MinReplicas {
				return fmt.Errorf("HorizontalPodAutoscaler %s has not scaled: %+v", h.Name, h.Status)
			}
		}
		sets, err := client.AppsV1().StatefulSets(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range sets.Items {
			if s := &sets.Items[i]; s.Status.ReadyReplicas != *s.Spec.Replicas {
				return fmt.Errorf("StatefulSet %s: %d of %d ready", s.Name, s.Status.ReadyReplicas, *s.Spec.Replicas)
			}
		}
		before := last
		if last, err = pods(ctx, client, ns); err != nil {
			return err
		}
		if before == nil || !maps.Equal(before, last) {
			return fmt.Errorf("Pods are on their way: %v", last)
		}
		return nil
	})
	return last
}

func command(t testing.TB, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	return world.System.Command(ctx, args...)
}

func mustCommand(t testing.TB, args ...string) string {
	t.Helper()
	out, err := command(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func ours(u *unstructured.Unstructured) bool {
	for _, f := range u.GetManagedFields() {
		if f.Manager == "isthmus" {
			return true
		}
	}
	return false
}
