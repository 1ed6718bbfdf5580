package membercache

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/merge"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

// member is the naive model of one cluster: what it holds, and of that what
// its feed has delivered.
type member struct {
	order   int
	rv      uint64
	pods    map[cache.Key]*corev1.Pod
	nodes   map[string]*corev1.Node
	offline bool
	queue   []func() // what the feed would bring, while it is cut off
	sinks   map[string]*merge.Source
}

// deliver brings an event at once, or when the feed goes on.
func (m *member) deliver(event func()) {
	if m.offline {
		m.queue = append(m.queue, event)
		return
	}
	event()
}

// machine drives the whole cache without feeds: members write, are cut off,
// are read anew, join and leave, names are reserved, time passes.
type machine struct {
	cache    *Cache
	clock    *testclock.FakeClock
	members  map[cache.ClusterName]*member
	joined   int
	uids     int
	releases []func()
	mirrors  map[string][]*cachetest.Mirror
	past     map[string]map[uint64]cachetest.Content
}

var clusterNames = []cache.ClusterName{"m1", "m2", "m3"}

// names that meet one another's aliases.
var podNames = []string{"db-0", "db-0.m2", "db-0.m3", "web", strings.Repeat("x", 252)}

func newMachine(t *rapid.T) *machine {
	clk := testclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	seq, err := sequence.Open(context.Background(), clk, &sequence.Memory{}, func(err error) { t.Fatal(err) })
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq, Now: clk})
	if err != nil {
		t.Fatal(err)
	}
	return &machine{
		cache: c, clock: clk, members: map[cache.ClusterName]*member{},
		mirrors: map[string][]*cachetest.Mirror{}, past: map[string]map[uint64]cachetest.Content{},
	}
}

func (m *machine) col(res cache.Resource) *collection {
	return m.cache.byResource[res.GroupVersionResource]
}

func (m *machine) anyMember(t *rapid.T) (cache.ClusterName, *member) {
	if len(m.members) == 0 {
		t.Skip("no member")
	}
	var joined []cache.ClusterName
	for _, n := range clusterNames {
		if m.members[n] != nil {
			joined = append(joined, n)
		}
	}
	n := rapid.SampledFrom(joined).Draw(t, "member")
	return n, m.members[n]
}

func (m *machine) join(t *rapid.T) {
	n := rapid.SampledFrom(clusterNames).Draw(t, "cluster")
	if m.members[n] != nil {
		t.Skip("joined already")
	}
	m.joined++
	mem := &member{order: m.joined, rv: 100, pods: map[cache.Key]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, sinks: map[string]*merge.Source{}}
	m.members[n] = mem
	for _, res := range []cache.Resource{Pods, Nodes} {
		mem.sinks[res.Resource] = m.col(res).Join(n, mem.order, false)
	}
	m.relistAll(t, mem)
}

func (m *machine) leave(t *rapid.T) {
	n, _ := m.anyMember(t)
	for _, col := range m.cache.collections {
		col.Remove(n)
	}
	m.cache.index.Forget(n)
	delete(m.members, n)
}

func (m *machine) reorder(t *rapid.T) {
	n, mem := m.anyMember(t)
	m.joined++
	mem.order = m.joined
	for _, res := range []cache.Resource{Pods, Nodes} {
		m.col(res).Join(n, mem.order, false)
	}
}

func (m *machine) uid() types.UID {
	m.uids++
	return types.UID(fmt.Sprintf("uid-%d", m.uids))
}

// observe makes a write visible that the feed has not brought.
func (m *machine) observe(t *rapid.T, n cache.ClusterName, pod *corev1.Pod) {
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	rv, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	type answer struct {
		o   *cache.Object
		err error
	}
	answers := make(chan answer)
	go func() {
		o, err := m.col(Pods).Observe(context.Background(), n, pod.Namespace, pod.Name, rv, raw)
		answers <- answer{o, err}
	}()
	for !m.clock.HasWaiters() {
		runtime.Gosched()
	}
	m.clock.Step(2 * time.Second)
	got := <-answers
	if got.err != nil || got.o == nil || got.o.SourceRV != rv || got.o.UID != pod.UID {
		t.Fatalf("observed %+v, %v", got.o, got.err)
	}
}

// resume lets the feed of a member bring some of what it has missed.
func (m *machine) resume(t *rapid.T) {
	_, mem := m.anyMember(t)
	if !mem.offline {
		t.Skip("not cut off")
	}
	n := rapid.IntRange(0, len(mem.queue)).Draw(t, "events")
	for _, event := range mem.queue[:n] {
		event()
	}
	if mem.queue = mem.queue[n:]; len(mem.queue) > 0 {
		return
	}
	mem.offline = false
	for _, s := range mem.sinks {
		s.Connected()
	}
}

func (m *machine) writePod(t *rapid.T) {
	n, mem := m.anyMember(t)
	key := cache.Key{Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "ns"), Name: rapid.SampledFrom(podNames).Draw(t, "name")}
	mem.rv++
	pod, ok := mem.pods[key]
	if !ok || rapid.IntRange(0, 9).Draw(t, "replaced") == 0 {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: m.uid()}}
	}
	pod = pod.DeepCopy()
	pod.ResourceVersion = fmt.Sprint(mem.rv)
	pod.Labels = map[string]string{"n": fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "label"))}
	pod.Spec.NodeName = rapid.SampledFrom([]string{"", "n1", "n2"}).Draw(t, "node")
	mem.pods[key] = pod
	mem.deliver(func() { put(t, mem.sinks["pods"], pod) })
	if mem.offline && rapid.IntRange(0, 2).Draw(t, "observed") == 0 {
		m.observe(t, n, pod)
	}
}

func (m *machine) writeNode(t *rapid.T) {
	_, mem := m.anyMember(t)
	name := rapid.SampledFrom([]string{"n1", "n2"}).Draw(t, "name")
	mem.rv++
	node, ok := mem.nodes[name]
	if !ok {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: m.uid()}}
	}
	node = node.DeepCopy()
	node.ResourceVersion = fmt.Sprint(mem.rv)
	mem.nodes[name] = node
	mem.deliver(func() { put(t, mem.sinks["nodes"], node) })
}

func (m *machine) deletePod(t *rapid.T) {
	_, mem := m.anyMember(t)
	keys := sortedKeys(mem.pods, cache.Key.Compare)
	if len(keys) == 0 {
		t.Skip("no Pod")
	}
	key := rapid.SampledFrom(keys).Draw(t, "key")
	mem.rv++
	pod := mem.pods[key].DeepCopy()
	pod.ResourceVersion = fmt.Sprint(mem.rv)
	delete(mem.pods, key)
	mem.deliver(func() { remove(t, mem.sinks["pods"], pod) })
}

func (m *machine) deleteNode(t *rapid.T) {
	_, mem := m.anyMember(t)
	names := sortedKeys(mem.nodes, strings.Compare)
	if len(names) == 0 {
		t.Skip("no Node")
	}
	mem.rv++
	node := mem.nodes[rapid.SampledFrom(names).Draw(t, "name")].DeepCopy()
	node.ResourceVersion = fmt.Sprint(mem.rv)
	delete(mem.nodes, node.Name)
	mem.deliver(func() { remove(t, mem.sinks["nodes"], node) })
}

func sortedKeys[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}

type marshaler interface{ Marshal() ([]byte, error) }

func put(t *rapid.T, s *merge.Source, obj marshaler) {
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(raw); err != nil {
		t.Fatal(err)
	}
}

func remove(t *rapid.T, s *merge.Source, obj marshaler) {
	raw, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(raw); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) cut(t *rapid.T) {
	_, mem := m.anyMember(t)
	mem.offline = true
	for _, s := range mem.sinks {
		s.Disconnected(context.DeadlineExceeded)
	}
}

func (m *machine) heal(t *rapid.T) {
	_, mem := m.anyMember(t)
	m.relistAll(t, mem)
}

func (m *machine) relistAll(t *rapid.T, mem *member) {
	mem.offline, mem.queue = false, nil
	pods, nodes := mem.sinks["pods"], mem.sinks["nodes"]
	pods.Begin()
	for _, k := range sortedKeys(mem.pods, cache.Key.Compare) {
		put(t, pods, mem.pods[k])
	}
	pods.End(fmt.Sprint(mem.rv))
	nodes.Begin()
	for _, k := range sortedKeys(mem.nodes, strings.Compare) {
		put(t, nodes, mem.nodes[k])
	}
	nodes.End(fmt.Sprint(mem.rv))
}

func (m *machine) reserve(t *rapid.T) {
	n, _ := m.anyMember(t)
	key := cache.Key{Namespace: "a", Name: rapid.SampledFrom(podNames).Draw(t, "name")}
	col := m.col(Pods)
	release, err := col.Reserve(key, n)
	if err != nil {
		return
	}
	if holder, ok := col.Holder(key); !ok || holder != n {
		t.Fatalf("%s is reserved for %s, its holder is %q, %v", key, n, holder, ok)
	}
	m.releases = append(m.releases, release)
}

func (m *machine) release(t *rapid.T) {
	if len(m.releases) == 0 {
		t.Skip("nothing reserved")
	}
	m.releases[0]()
	m.releases[0]()
	m.releases = m.releases[1:]
}

func (m *machine) pass(t *rapid.T) {
	m.clock.Step(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Minute, 4 * time.Minute}).Draw(t, "time"))
	for _, col := range m.cache.collections {
		col.Tick()
	}
}

// pack brings to rest what the cache holds.
func (m *machine) pack(*rapid.T) {
	for _, col := range m.cache.collections {
		col.Store().PackAll()
	}
}

func (m *machine) watch(t *rapid.T) {
	res := rapid.SampledFrom([]cache.Resource{Pods, Nodes}).Draw(t, "resource")
	col := m.col(res)
	at := cache.Version{}
	if revisions := sortedKeys(m.past[res.Resource], func(a, b uint64) int { return int(a) - int(b) }); len(revisions) > 0 && rapid.Bool().Draw(t, "from the past") {
		at = cache.Version{Match: cache.Exact, RV: rapid.SampledFrom(revisions).Draw(t, "rv")}
		if at.RV < col.Store().History().From {
			t.Skip("expired")
		}
	}
	snap, err := col.Snapshot(context.Background(), at)
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := cachetest.NewMirror(context.Background(), col, snap)
	if err != nil {
		t.Fatal(err)
	}
	m.mirrors[res.Resource] = append(m.mirrors[res.Resource], mirror)
}
