package retain

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func object(t *testing.T, doc string) *unstructured.Unstructured {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	return u
}

func TestStrip(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"metadata": {
			`{apiVersion: v1, kind: ConfigMap, data: {a: b}, metadata: {name: c, namespace: d, uid: u, resourceVersion: "1", generation: 3,
			  creationTimestamp: "2026-01-01T00:00:00Z", deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 1, selfLink: /x,
			  generateName: c-, finalizers: [example.com/hub], ownerReferences: [{apiVersion: v1, kind: X, name: x, uid: y}],
			  managedFields: [{manager: m}],
			  labels: {app: a, isthmus.dev/cluster: m1, propagationpolicy.karmada.io/permanent-id: x},
			  annotations: {note: text, isthmus.dev/hold: "true", kubectl.kubernetes.io/last-applied-configuration: "{}"}}}`,
			`{apiVersion: v1, kind: ConfigMap, data: {a: b}, metadata: {name: c, namespace: d, labels: {app: a}, annotations: {note: text}}}`,
		},
		"Deployment": {
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: c, annotations: {deployment.kubernetes.io/revision: "3"}}, status: {replicas: 1},
			  spec: {replicas: 0, template: {metadata: {creationTimestamp: null, labels: {app: a}}, spec: {imagePullSecrets: [{name: p}, {name: q}, {name: p}], containers: [
			    {name: c, env: [{name: A, value: "1"}, {name: B}, {name: A, value: "2"}],
			     ports: [{containerPort: 80, protocol: TCP, name: x}, {containerPort: 80, protocol: UDP}, {containerPort: 80, protocol: TCP, name: y}]}]}}}}`,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: c},
			  spec: {replicas: 0, template: {metadata: {labels: {app: a}}, spec: {imagePullSecrets: [{name: q}, {name: p}], containers: [
			    {name: c, env: [{name: B}, {name: A, value: "2"}],
			     ports: [{containerPort: 80, protocol: UDP}, {containerPort: 80, protocol: TCP, name: y}]}]}}}}`,
		},
		"Service": {
			`{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [{port: 80, nodePort: 30000}]}, status: {loadBalancer: {}}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80, nodePort: 30000}]}}`,
		},
		"headless Service": {
			`{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: None, clusterIPs: [None]}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {clusterIP: None}}`,
		},
		"Job": {
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {job-name: j, mine: x}}, spec: {ttlSecondsAfterFinished: 5, parallelism: 2,
			  selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}},
			  template: {metadata: {labels: {app: a, controller-uid: u, job-name: j, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: j}}, spec: {}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {mine: x}}, spec: {parallelism: 2, template: {metadata: {labels: {app: a}}, spec: {}}}}`,
		},
		"Job with its own selector": {
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {manualSelector: true, selector: {matchLabels: {job-name: j}}, template: {metadata: {labels: {job-name: j}}, spec: {}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {manualSelector: true, selector: {matchLabels: {job-name: j}}, template: {metadata: {labels: {job-name: j}}, spec: {}}}}`,
		},
		"PersistentVolumeClaim": {
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p, annotations: {pv.kubernetes.io/bind-completed: "yes"}, finalizers: [kubernetes.io/pvc-protection]}, spec: {volumeName: v, resources: {requests: {storage: 1Gi}}}, status: {phase: Bound}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: p}, spec: {resources: {requests: {storage: 1Gi}}}}`,
		},
		"ServiceAccount": {
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, secrets: [{name: s-token}], imagePullSecrets: [{name: pull}]}`,
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}, imagePullSecrets: [{name: pull}]}`,
		},
		"Namespace": {
			`{apiVersion: v1, kind: Namespace, metadata: {name: nn, labels: {kubernetes.io/metadata.name: nn, team: x}}, spec: {finalizers: [kubernetes]}, status: {phase: Active}}`,
			`{apiVersion: v1, kind: Namespace, metadata: {name: nn, labels: {team: x}}}`,
		},
		"StatefulSet": {
			`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: nn}, spec: {volumeClaimTemplates: [{metadata: {name: d, creationTimestamp: null}, status: {phase: Pending}}]}}`,
			`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: nn}, spec: {volumeClaimTemplates: [{metadata: {name: d}}]}}`,
		},
	} {
		got := object(t, c.in)
		Strip(got)
		if diff := cmp.Diff(object(t, c.want).Object, got.Object); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		again := got.DeepCopy()
		Strip(again)
		if !reflect.DeepEqual(got.Object, again.Object) {
			t.Errorf("%s: not idempotent", name)
		}
	}
}

func TestUnallocated(t *testing.T) {
	svc := object(t, `{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, healthCheckNodePort: 31000,
	  ports: [{port: 80, protocol: TCP, nodePort: 30080}, {port: 81, protocol: TCP, nodePort: 30081}, {port: 81, protocol: UDP, nodePort: 30082}]}}`)
	svc.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "user", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:ipFamilyPolicy":{},"f:ports":{".":{},"k:{\"port\":81,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:nodePort":{}}}}}`)},
		{Manager: "status", Operation: "Update", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:healthCheckNodePort":{}}}`)},
	})
	if err := Unallocated(svc); err != nil {
		t.Fatal(err)
	}
	want := object(t, `{spec: {ipFamilyPolicy: SingleStack, ports: [{port: 80, protocol: TCP}, {port: 81, protocol: TCP, nodePort: 30081}, {port: 81, protocol: UDP}]}, kind: Service, apiVersion: v1}`)
	if diff := cmp.Diff(want.Object["spec"], svc.Object["spec"]); diff != "" {
		t.Error(diff)
	}

	other := object(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, spec: {ipFamilies: [IPv4]}}`)
	if err := Unallocated(other); err != nil || other.Object["spec"] == nil {
		t.Errorf("another kind was changed: %v, %v", other.Object, err)
	}
	svc.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x", FieldsV1: metav1.NewFieldsV1(`[1]`)}})
	if err := Unallocated(svc); err == nil {
		t.Error("broken managedFields are not reported")
	}
}

// Whatever is stored: no panic, nothing of the control plane travels.
func FuzzStrip(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x","uid":"u"},"spec":{"selector":null,"template":{"metadata":{"labels":null},"spec":{"containers":[{"env":[1,null,{"name":{}}],"ports":"x"}]}}}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Service","metadata":{"name":"x"},"spec":{"ports":[null,{"port":"a"}],"clusterIP":5}}`))
	f.Add([]byte(`{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"name":"x"},"spec":{"volumeClaimTemplates":{},"template":{"spec":{"containers":{}}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil || u.IsList() {
			return
		}
		if err := Unallocated(u); err != nil {
			return
		}
		Strip(u)
		if u.GetUID() != "" || u.GetResourceVersion() != "" || len(u.GetFinalizers()) > 0 || u.Object["status"] != nil {
			t.Errorf("left: %v", u.Object)
		}
		if _, err := json.Marshal(u.Object); err != nil {
			t.Error(err)
		}
	})
}
