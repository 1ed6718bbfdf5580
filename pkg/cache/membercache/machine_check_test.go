package membercache

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/names"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// check holds after every step.
func (m *machine) check(t *rapid.T) {
	m.cache.Resolve()
	for _, res := range []cache.Resource{Pods, Nodes} {
		m.checkCollection(t, res)
	}
	m.checkServed(t)
}

func (m *machine) checkCollection(t *rapid.T, res cache.Resource) {
	col, ctx := m.col(res), context.Background()
	col.Store().Publish() // a burst has ended
	snap, err := col.Snapshot(ctx, cache.Version{})
	if err != nil {
		t.Fatal(err)
	}
	content, err := cachetest.Read(res, snap)
	if err != nil {
		t.Fatal(err)
	}
	from := col.Store().History().From
	var kept []*cachetest.Mirror
	for _, mirror := range m.mirrors[res.Resource] {
		switch err := mirror.CatchUp(ctx, snap.RV()); {
		case err == nil:
			if err := mirror.Equal(content); err != nil {
				t.Fatal(err)
			}
			kept = append(kept, mirror)
		case from == 0:
			t.Fatal(err)
		}
	}
	m.mirrors[res.Resource] = kept
	if m.past[res.Resource] == nil {
		m.past[res.Resource] = map[uint64]cachetest.Content{}
	}
	m.past[res.Resource][snap.RV()] = content
	for rv, want := range m.past[res.Resource] {
		old, err := col.Snapshot(ctx, cache.Version{Match: cache.Exact, RV: rv})
		if err != nil {
			if rv >= from {
				t.Fatalf("exact %d, history from %d: %v", rv, from, err)
			}
			continue
		}
		got, err := cachetest.Read(res, old)
		if err != nil {
			t.Fatal(err)
		}
		if err := cachetest.Same(got, want); err != nil {
			t.Fatalf("exact %d: %v", rv, err)
		}
	}
}

// checkServed compares with the members, for what is not cut off.
func (m *machine) checkServed(t *rapid.T) {
	pods, nodes := m.col(Pods), m.col(Nodes)
	total := 0
	for n, mem := range m.members {
		if mem.offline {
			total += pods.Stats().Objects[n]
			continue
		}
		total += len(mem.pods)
		for key, pod := range mem.pods {
			o, ok := pods.FindSource(n, key.Namespace, key.Name)
			if !ok || o.UID != pod.UID || fmt.Sprint(o.SourceRV) != pod.ResourceVersion {
				t.Fatalf("%s of %s is served as %+v", key, n, o)
			}
			if o.Key.Name != pods.ServedName(n, key.Namespace, key.Name) {
				t.Fatalf("%s of %s is served as %s, ServedName says %s", key, n, o.Key.Name, pods.ServedName(n, key.Namespace, key.Name))
			}
			node, err := wire.Text(cache.Protobuf, o.Raw(), wire.PodNodeName)
			if err != nil {
				t.Fatal(err)
			}
			_, there := mem.nodes[pod.Spec.NodeName]
			if want := served(nodes, n, pod.Spec.NodeName); there && node != want {
				t.Fatalf("%s of %s is on %q, its Node is served as %q", key, n, node, want)
			}
			m.checkName(t, n, key, o)
		}
		if got := nodes.Stats().Objects[n]; got != len(mem.nodes) {
			t.Fatalf("%d Nodes of %s, not %d", got, n, len(mem.nodes))
		}
	}
	if got := pods.Store().Present().Len(); got != total {
		t.Fatalf("%d Pods are served, %d are there", got, total)
	}
}

func served(nodes *collection, cluster cache.ClusterName, name string) string {
	if name == "" {
		return ""
	}
	return nodes.ServedName(cluster, "", name)
}

// checkName holds what is true of every alias.
func (m *machine) checkName(t *rapid.T, n cache.ClusterName, key cache.Key, o *cache.Object) {
	if o.Key != key && (!strings.HasSuffix(o.Key.Name, "."+string(n)) || len(o.Key.Name) > 253) {
		t.Fatalf("%s of %s is served as %s", key, n, o.Key.Name)
	}
}

func TestMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"":            m.check,
			"join":        m.join,
			"leave":       m.leave,
			"reorder":     m.reorder,
			"write Pod":   m.writePod,
			"write Pod 2": m.writePod,
			"write Node":  m.writeNode,
			"delete Pod":  m.deletePod,
			"delete Node": m.deleteNode,
			"cut":         m.cut,
			"heal":        m.heal,
			"resume":      m.resume,
			"reserve":     m.reserve,
			"release":     m.release,
			"pack":        m.pack,
			"pass":        m.pass,
			"watch":       m.watch,
		})
		for len(m.releases) > 0 {
			m.release(t)
		}
		m.clock.Step(names.Keep + time.Second)
		for _, col := range m.cache.collections {
			col.Tick()
		}
		m.check(t)
		m.checkSettled(t)
	})
}

// checkSettled: once nothing is reserved, every bare name that is held is
// served by the first of its holders.
func (m *machine) checkSettled(t *rapid.T) {
	first := map[cache.Key]cache.ClusterName{}
	for n, mem := range m.members {
		if mem.offline {
			return
		}
		for key := range mem.pods {
			if f, ok := first[key]; !ok || mem.order < m.members[f].order {
				first[key] = n
			}
		}
	}
	for key, n := range first {
		if o, ok := m.col(Pods).FindSource(n, key.Namespace, key.Name); !ok || o.Key != key {
			t.Fatalf("%s is first held by %s, which is served as %v", key, n, o.Key)
		}
	}
}
