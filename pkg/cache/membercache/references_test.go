package membercache

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/feed"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

// fixture is a cache with sources but without feeds.
type fixture struct {
	t     *testing.T
	cache *Cache
	clock *testclock.FakeClock
	order int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	clk := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	seq, err := sequence.Open(t.Context(), clk, &sequence.Memory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq, Now: clk})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t: t, cache: c, clock: clk}
}

// sink gives the sink of a source, joined and synced while empty.
func (f *fixture) sink(cluster cache.ClusterName, res cache.Resource) feed.Sink {
	f.order++
	s := f.cache.byResource[res.GroupVersionResource].Join(cluster, f.order, false)
	s.Begin()
	s.End("1")
	return s
}

func (f *fixture) deployments(cluster cache.ClusterName) feed.Sink {
	return newCopies(f.cache, cluster, managedResources[0])
}

func (f *fixture) put(s feed.Sink, obj marshaler) {
	f.t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := s.Put(raw); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) remove(s feed.Sink, obj marshaler) {
	f.t.Helper()
	raw, err := obj.Marshal()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := s.Delete(raw); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) pod(name string) *corev1.Pod {
	f.t.Helper()
	pod := &corev1.Pod{}
	f.get(Pods, cache.Key{Namespace: "d", Name: name}, pod)
	return pod
}

func (f *fixture) get(res cache.Resource, key cache.Key, into interface{ Unmarshal([]byte) error }) {
	f.t.Helper()
	o, err := f.cache.byResource[res.GroupVersionResource].Get(f.t.Context(), key, cache.Version{})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cachetest.CheckObject(res, o); err != nil {
		f.t.Fatal(err)
	}
	if err := into.Unmarshal(o.Raw()); err != nil {
		f.t.Fatal(err)
	}
}

func meta(name, uid, rv string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID(uid), ResourceVersion: rv}
}

func managedDeployment() *metav1.PartialObjectMetadata {
	m := meta("web", "copy", "10")
	m.Labels = map[string]string{cache.ManagedLabel: "true"}
	m.Annotations = map[string]string{cache.TemplateUIDAnnotation: "template", cache.TemplateAnnotation: "apps/v1/Deployment/d/web"}
	return &metav1.PartialObjectMetadata{ObjectMeta: m}
}

func memberReplicaSet() *appsv1.ReplicaSet {
	m := meta("web-5d9", "rs", "11")
	m.Annotations = map[string]string{cache.RevisionAnnotation: "web-77c/cp-rs"}
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "copy", Controller: new(true)}}
	return &appsv1.ReplicaSet{ObjectMeta: m}
}

func ownedPod(rv string) *corev1.Pod {
	m := meta("web-5d9-x", "pod", rv)
	m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d9", UID: "rs", Controller: new(true)}}
	return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: "n1"}}
}

func owner(pod *corev1.Pod) string {
	o := pod.OwnerReferences[0]
	return o.Name + "/" + string(o.UID)
}

// TestOwnersInAnyOrder: however the copy, its ReplicaSet and the Pod arrive, the
// Pod ends with the control plane's ReplicaSet and the member's is not served.
func TestOwnersInAnyOrder(t *testing.T) {
	for _, order := range []string{"drp", "dpr", "rdp", "rpd", "pdr", "prd"} {
		t.Run(order, func(t *testing.T) {
			f := newFixture(t)
			pods, sets, copies := f.sink("m1", Pods), f.sink("m1", ReplicaSets), f.deployments("m1")
			for _, what := range order {
				switch what {
				case 'd':
					f.put(copies, managedDeployment())
				case 'r':
					f.put(sets, memberReplicaSet())
				case 'p':
					f.put(pods, ownedPod("12"))
				}
				f.cache.Resolve()
			}
			f.cache.Resolve()
			if got := owner(f.pod("web-5d9-x")); got != "web-77c/cp-rs" {
				t.Errorf("the Pod's owner is %s", got)
			}
			if o, ok := f.cache.byResource[ReplicaSets.GroupVersionResource].FindSource("m1", "d", "web-5d9"); ok {
				t.Errorf("the member's ReplicaSet is served: %+v", o)
			}
		})
	}
}

// TestReleasedOwner: a Deployment that is managed no longer gives its
// ReplicaSet and the Pods' owner back, after a while.
func TestReleasedOwner(t *testing.T) {
	f := newFixture(t)
	pods, sets, copies := f.sink("m1", Pods), f.sink("m1", ReplicaSets), f.deployments("m1")
	f.put(copies, managedDeployment())
	f.put(sets, memberReplicaSet())
	f.put(pods, ownedPod("12"))
	f.remove(copies, managedDeployment())
	f.cache.Resolve()
	if got := owner(f.pod("web-5d9-x")); got != "web-77c/cp-rs" {
		t.Errorf("at once the Pod's owner is %s", got)
	}
	for range 2 { // the copy's end frees the ReplicaSet, whose end frees the Pod
		f.clock.Step(references.Linger + time.Second)
		f.cache.index.Expire(f.clock.Now())
		f.cache.Resolve()
	}
	if got := owner(f.pod("web-5d9-x")); got != "web-5d9/rs" {
		t.Errorf("in the end the Pod's owner is %s", got)
	}
	var rs appsv1.ReplicaSet
	f.get(ReplicaSets, cache.Key{Namespace: "d", Name: "web-5d9"}, &rs)
	want := memberReplicaSet()
	want.Labels = map[string]string{cache.ClusterLabel: "m1"}
	want.ResourceVersion = rs.ResourceVersion
	if diff := cmp.Diff(*want, rs); diff != "" {
		t.Error(diff)
	}
}

// TestInheritedMarkIsForeign: marks that name another object do not count.
func TestInheritedMarkIsForeign(t *testing.T) {
	f := newFixture(t)
	pods, copies := f.sink("m1", Pods), f.deployments("m1")
	clone := managedDeployment()
	clone.Name, clone.UID = "clone", "rs"
	f.put(copies, clone)
	f.put(pods, ownedPod("12"))
	f.cache.Resolve()
	if got := owner(f.pod("web-5d9-x")); got != "web-5d9/rs" {
		t.Errorf("the Pod's owner is %s", got)
	}
}

// TestEventsFollow: an Event leads to the Pod, the Node and the template as
// served, also when they come or move later.
func TestEventsFollow(t *testing.T) {
	f := newFixture(t)
	pods1, pods2 := f.sink("m1", Pods), f.sink("m2", Pods)
	nodes1, nodes2 := f.sink("m1", Nodes), f.sink("m2", Nodes)
	events, copies := f.sink("m2", Events), f.deployments("m2")
	event := func(name string, about corev1.ObjectReference) {
		f.put(events, &corev1.Event{ObjectMeta: meta(name, name, "20"), InvolvedObject: about})
	}
	event("of-pod", corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "d", Name: "db-0", UID: "pod2"})
	event("of-node", corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "n1"})
	event("of-copy", corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "d", Name: "web", UID: "copy"})
	f.put(copies, managedDeployment())
	f.put(pods2, &corev1.Pod{ObjectMeta: meta("db-0", "pod2", "3")})
	f.put(nodes2, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node2", ResourceVersion: "3"}})
	f.put(pods1, &corev1.Pod{ObjectMeta: meta("db-0", "pod1", "3")})
	f.put(nodes1, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node1", ResourceVersion: "3"}})
	f.cache.Resolve()
	for name, want := range map[string]string{"of-pod": "db-0.m2/pod2", "of-node": "n1.m2/n1.m2", "of-copy": "web/template"} {
		var e corev1.Event
		f.get(Events, cache.Key{Namespace: "d", Name: name}, &e)
		if got := e.InvolvedObject.Name + "/" + string(e.InvolvedObject.UID); got != want {
			t.Errorf("%s is about %s, not %s", name, got, want)
		}
	}
	o, _ := f.cache.byResource[Events.GroupVersionResource].FindSource("m2", "d", "of-pod")
	if got := o.Fields.Get("involvedObject.name"); got != "db-0.m2" {
		t.Errorf("the field selector sees %q", got)
	}
}

// TestManagedCopyOfDualKind: a copy is not shown beside its template.
func TestManagedCopyOfDualKind(t *testing.T) {
	f := newFixture(t)
	own, sets := f.sink(cache.ControlPlane, ReplicaSets), f.sink("m1", ReplicaSets)
	f.put(own, &appsv1.ReplicaSet{ObjectMeta: meta("rs", "template", "5")})
	m := meta("rs", "copy", "6")
	m.Labels = map[string]string{cache.ManagedLabel: "true"}
	m.Annotations = map[string]string{cache.TemplateUIDAnnotation: "template", cache.TemplateAnnotation: "apps/v1/ReplicaSet/d/rs"}
	f.put(sets, &appsv1.ReplicaSet{ObjectMeta: m})
	col := f.cache.byResource[ReplicaSets.GroupVersionResource]
	snap, err := col.Snapshot(context.Background(), cache.Version{})
	if err != nil {
		t.Fatal(err)
	}
	if snap.Len() != 1 {
		t.Fatalf("%d ReplicaSets are served", snap.Len())
	}
	f.put(f.sink("m2", ReplicaSets), &appsv1.ReplicaSet{ObjectMeta: meta("rs", "other", "6")})
	o, err := col.Get(t.Context(), cache.Key{Namespace: "d", Name: "rs"}, cache.Version{})
	if err != nil || o.Cluster != cache.ControlPlane {
		t.Errorf("the bare name is %+v, %v", o, err)
	}
}
