package kinds

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const backend = `
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  serviceName: web
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: web}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: StatefulSet, name: web}]
  placement:
    clusterAffinity: {clusterNames: [m1, m2]}
    replicaScheduling: {replicaSchedulingType: Duplicated}
`

// The EndpointSlices of a Service are those of all members. They belong to the
// Service as the endpoint has it and lead to Pods and Nodes as it has them.
func TestEndpointSlices(t *testing.T) {
	t.Parallel()
	ns, admin := namespaceEverywhere(t), world.System.Kubeconfig()
	docs := strings.Split(backend, "---")
	slices.Reverse(docs) // the policy first
	apply(t, admin, ns, strings.Join(docs, "---"))
	service, err := endpoint(t).CoreV1().Services(ns).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, 60*time.Second, func(ctx context.Context) error {
		list, err := endpoint(t).DiscoveryV1().EndpointSlices(ns).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"})
		if err != nil {
			return err
		}
		reached := map[string]string{}
		for _, s := range list.Items {
			if o := s.OwnerReferences[0]; o.UID != service.UID {
				return fmt.Errorf("%s is owned by %+v, the Service is %s", s.Name, o, service.UID)
			}
			for _, e := range s.Endpoints {
				pod, err := endpoint(t).CoreV1().Pods(ns).Get(ctx, e.TargetRef.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if pod.UID != e.TargetRef.UID || pod.Spec.NodeName != *e.NodeName || pod.Status.PodIP != e.Addresses[0] {
					return fmt.Errorf("%s of %s is not what its endpoint says", pod.Name, s.Name)
				}
				reached[pod.Name] = s.Labels["isthmus.dev/cluster"]
			}
		}
		if got := fmt.Sprint(reached); got != "map[web-0:m1 web-0.m2:m2 web-1:m1 web-1.m2:m2]" {
			return fmt.Errorf("the Service reaches %s", got)
		}
		return nil
	})
	labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
		pod, err := endpoint(t).CoreV1().Pods(ns).Get(ctx, "web-0.m2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, err := endpoint(t).CoreV1().Pods(ns).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + pod.Spec.NodeName})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			if p.Labels["isthmus.dev/cluster"] != "m2" || p.Spec.NodeName != pod.Spec.NodeName {
				return fmt.Errorf("on %s: %s on %s", pod.Spec.NodeName, as(&p), p.Spec.NodeName)
			}
		}
		if len(list.Items) == 0 {
			return fmt.Errorf("no Pods on %s", pod.Spec.NodeName)
		}
		return nil
	})
}
