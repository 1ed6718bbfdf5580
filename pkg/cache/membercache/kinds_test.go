package membercache

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
)

func boundClaim(uid string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: meta("data", uid, "3"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}}
}

func boundVolume(uid, claimUID string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: types.UID(uid), ResourceVersion: "3"},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "d", Name: "data", UID: types.UID(claimUID),
		}},
	}
}

func claimingPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta("db-0", "pod2", "3"), Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "scratch"},
		{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
	}}}
}

// storage is what one look at m2's Pod, claim and volume shows.
func (f *fixture) storage() string {
	f.t.Helper()
	find := func(res cache.Resource, namespace, name string, into interface{ Unmarshal([]byte) error }) {
		o, ok := f.cache.byResource[res.GroupVersionResource].FindSource("m2", namespace, name)
		if !ok {
			f.t.Fatalf("%s of m2 is not served", name)
		}
		f.get(res, o.Key, into)
	}
	var pod corev1.Pod
	var claim corev1.PersistentVolumeClaim
	var volume corev1.PersistentVolume
	find(Pods, "d", "db-0", &pod)
	find(Claims, "d", "data", &claim)
	find(Volumes, "", "pv", &volume)
	ref := volume.Spec.ClaimRef
	return pod.Spec.Volumes[1].PersistentVolumeClaim.ClaimName + " " + claim.Spec.VolumeName + " " + ref.Name + "/" + string(ref.UID)
}

// TestStorageReferences: Pod, claim and volume, which refer to one another in a
// circle, follow the names as served, in whatever order they come and go.
func TestStorageReferences(t *testing.T) {
	const bare, renamed = "data pv data/claim2", "data.m2 pv.m2 data.m2/claim2"
	for _, first := range []cache.ClusterName{"m1", "m2"} {
		f := newFixture(t)
		// m1 joined first, whoever is fed first.
		claims1, volumes1 := f.sink("m1", Claims), f.sink("m1", Volumes)
		claims2, volumes2, pods2 := f.sink("m2", Claims), f.sink("m2", Volumes), f.sink("m2", Pods)
		feed := map[cache.ClusterName]func(){
			"m1": func() { f.put(claims1, boundClaim("claim1")); f.put(volumes1, boundVolume("pv1", "claim1")) },
			"m2": func() {
				f.put(pods2, claimingPod())
				f.put(volumes2, boundVolume("pv2", "claim2"))
				f.put(claims2, boundClaim("claim2"))
			},
		}
		second := map[cache.ClusterName]cache.ClusterName{"m1": "m2", "m2": "m1"}[first]
		feed[first]()
		f.cache.Resolve()
		if first == "m2" {
			if got := f.storage(); got != bare {
				t.Errorf("alone: %s", got)
			}
		}
		feed[second]()
		f.cache.Resolve()
		if got := f.storage(); got != renamed {
			t.Errorf("%s first: %s", first, got)
		}
		// m1 leaves: the names become bare again.
		for _, res := range []cache.Resource{Claims, Volumes} {
			f.cache.byResource[res.GroupVersionResource].Remove("m1")
		}
		f.clock.Step(6 * time.Minute)
		for _, col := range f.cache.collections {
			col.Tick()
		}
		f.cache.index.Expire(f.clock.Now())
		f.cache.Resolve()
		if got := f.storage(); got != bare {
			t.Errorf("after m1 has left: %s", got)
		}
	}
}

// TestClaimOfTemplate: a volume is bound to the template of a managed copy.
func TestClaimOfTemplate(t *testing.T) {
	f := newFixture(t)
	own, claims, volumes := f.sink(cache.ControlPlane, Claims), f.sink("m1", Claims), f.sink("m1", Volumes)
	f.put(volumes, boundVolume("pv1", "copy"))
	f.put(own, boundClaim("template"))
	m := boundClaim("copy")
	m.Labels = map[string]string{cache.ManagedLabel: "true"}
	m.Annotations = map[string]string{cache.TemplateUIDAnnotation: "template", cache.TemplateAnnotation: "core/v1/PersistentVolumeClaim/d/data"}
	f.put(claims, m)
	f.cache.Resolve()
	var volume corev1.PersistentVolume
	f.get(Volumes, cache.Key{Name: "pv"}, &volume)
	if got := volume.Spec.ClaimRef.UID; got != "template" {
		t.Errorf("the volume's claim is %s", got)
	}
}

// TestJobOfManagedCronJob: the Jobs of a managed CronJob are the member's, owned
// by the template; of two clusters' Jobs of one name the Pods follow theirs.
func TestJobOfManagedCronJob(t *testing.T) {
	f := newFixture(t)
	job := func(uid, owner string) *batchv1.Job {
		m := meta("tick-1", uid, "3")
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Name: "tick", UID: types.UID(owner), Controller: new(true)}}
		return &batchv1.Job{ObjectMeta: m, Status: batchv1.JobStatus{Succeeded: 2}}
	}
	m := meta("tick", "cron2", "2")
	m.Labels = map[string]string{cache.ManagedLabel: "true"}
	m.Annotations = map[string]string{cache.TemplateUIDAnnotation: "template", cache.TemplateAnnotation: "batch/v1/CronJob/d/tick"}
	jobs1, jobs2, pods2 := f.sink("m1", Jobs), f.sink("m2", Jobs), f.sink("m2", Pods)
	pod := meta("tick-1-x", "pod", "3")
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "tick-1", UID: "job2", Controller: new(true)}}
	f.put(pods2, &corev1.Pod{ObjectMeta: pod})
	f.put(jobs2, job("job2", "cron2"))
	f.put(jobs1, job("job1", "cron1"))
	for _, res := range managedResources {
		if res.Kind == "CronJob" {
			f.put(newCopies(f.cache, "m2", res), &metav1.PartialObjectMetadata{ObjectMeta: m})
		}
	}
	f.cache.Resolve()
	if got := owner(f.pod("tick-1-x")); got != "tick-1.m2/job2" {
		t.Errorf("the Pod's owner is %s", got)
	}
	var served batchv1.Job
	f.get(Jobs, cache.Key{Namespace: "d", Name: "tick-1.m2"}, &served)
	if o := served.OwnerReferences[0]; o.Name != "tick" || o.UID != "template" {
		t.Errorf("the Job's owner is %+v", o)
	}
	o, _ := f.cache.byResource[Jobs.GroupVersionResource].FindSource("m2", "d", "tick-1")
	if got := o.Fields.Get("status.successful"); got != "2" {
		t.Errorf("status.successful is %q", got)
	}
}

// TestRevisionsOfACopy: the ControllerRevisions of a managed copy are not served,
// in whatever order they come; a member's own are.
func TestRevisionsOfACopy(t *testing.T) {
	for _, copyFirst := range []bool{true, false} {
		f := newFixture(t)
		m := meta("db", "copy", "2")
		m.Labels = map[string]string{cache.ManagedLabel: "true"}
		m.Annotations = map[string]string{cache.TemplateUIDAnnotation: "template", cache.TemplateAnnotation: "apps/v1/StatefulSet/d/db"}
		mark := func() {
			f.put(newCopies(f.cache, "m1", managedResources[1]), &metav1.PartialObjectMetadata{ObjectMeta: m})
		}
		history := f.sink("m1", Revisions)
		if copyFirst {
			mark()
		}
		for name, owner := range map[string]types.UID{"db-1": "copy", "own-1": "unmanaged"} {
			r := meta(name, name, "3")
			r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: owner, Controller: new(true)}}
			f.put(history, &appsv1.ControllerRevision{ObjectMeta: r})
		}
		if !copyFirst {
			mark()
		}
		f.cache.Resolve()
		col := f.cache.byResource[Revisions.GroupVersionResource]
		if o, ok := col.FindSource("m1", "d", "db-1"); ok {
			t.Errorf("copy first: %t: a copy's revision is served: %s", copyFirst, o.Key)
		}
		if _, ok := col.FindSource("m1", "d", "own-1"); !ok {
			t.Errorf("copy first: %t: a member's own revision is not served", copyFirst)
		}
	}
}

// TestEndpointSlices: all clusters' slices are served, and lead to Pods and
// Nodes as served.
func TestEndpointSlices(t *testing.T) {
	f := newFixture(t)
	slice := func(name, uid string) *discoveryv1.EndpointSlice {
		node := "n1"
		return &discoveryv1.EndpointSlice{ObjectMeta: meta(name, uid, "4"), Endpoints: []discoveryv1.Endpoint{
			{NodeName: &node, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "d", Name: "db-0", UID: "pod2"}},
			{TargetRef: &corev1.ObjectReference{Kind: "Widget", Namespace: "d", Name: "db-0"}},
		}}
	}
	pods1, pods2 := f.sink("m1", Pods), f.sink("m2", Pods)
	nodes1, nodes2 := f.sink("m1", Nodes), f.sink("m2", Nodes)
	f.put(f.sink("m1", EndpointSlices), slice("web-a", "slice1"))
	f.put(f.sink("m2", EndpointSlices), slice("web-b", "slice2"))
	f.put(pods2, claimingPod())
	f.put(pods1, claimingPod())
	for _, nodes := range []interface{ Put([]byte) error }{nodes2, nodes1} {
		raw, err := (&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n", ResourceVersion: "3"}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := nodes.Put(raw); err != nil {
			t.Fatal(err)
		}
	}
	f.cache.Resolve()
	for name, want := range map[string]string{"web-a": "db-0 n1", "web-b": "db-0.m2 n1.m2"} {
		var s discoveryv1.EndpointSlice
		f.get(EndpointSlices, cache.Key{Namespace: "d", Name: name}, &s)
		if got := s.Endpoints[0].TargetRef.Name + " " + *s.Endpoints[0].NodeName; got != want {
			t.Errorf("%s leads to %s, not %s", name, got, want)
		}
		if got := s.Endpoints[1].TargetRef.Name; got != "db-0" {
			t.Errorf("%s leads to %s, which is no Pod's name", name, got)
		}
	}
}

// TestNodeSelector: a field selector on spec.nodeName takes the Node's name as
// served, also when that changes.
func TestNodeSelector(t *testing.T) {
	f := newFixture(t)
	nodes1, nodes2, pods := f.sink("m1", Nodes), f.sink("m2", Nodes), f.sink("m2", Pods)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n", ResourceVersion: "3"}}
	f.put(nodes2, node)
	f.put(pods, ownedPod("5"))
	selected := func() string {
		o, _ := f.cache.byResource[Pods.GroupVersionResource].FindSource("m2", "d", "web-5d9-x")
		return o.Fields.Get("spec.nodeName")
	}
	if got := selected(); got != "n1" {
		t.Errorf("alone: %s", got)
	}
	f.put(nodes1, node)
	f.cache.Resolve()
	if got := selected(); got != "n1.m2" {
		t.Errorf("beside m1's Node: %s", got)
	}
}

// TestRenamesLinger: the name of an object that is gone is kept for what refers
// to it, then forgotten; one that comes back keeps it.
func TestRenamesLinger(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	x := references.NewIndex(func() {})
	key := cache.Key{Namespace: "d", Name: "tick"}
	served := func() string { return x.Renames().ServedName("m2", "batch/Job", key) }
	x.Renames().Set("m2", "batch/Job", key, "tick.m2")
	x.Renames().Gone("m2", "batch/Job", key, now)
	x.Renames().Set("m2", "batch/Job", key, "tick.m2")
	x.Expire(now.Add(time.Hour))
	if got := served(); got != "tick.m2" {
		t.Errorf("one that came back is %s", got)
	}
	x.Renames().Gone("m2", "batch/Job", key, now)
	x.Expire(now.Add(references.Linger))
	if got := served(); got != "tick.m2" {
		t.Errorf("while it lingers it is %s", got)
	}
	x.Expire(now.Add(references.Linger + time.Second))
	if got := served(); got != "tick" {
		t.Errorf("in the end it is %s", got)
	}
}
