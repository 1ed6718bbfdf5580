package engine

import (
	"github.com/isthmus-dev/isthmus/pkg/federation/interpreter"
	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/prune"
	"github.com/isthmus-dev/isthmus/pkg/federation/replicas"
	"github.com/isthmus-dev/isthmus/pkg/federation/rollout"
)

// inputs are what a rendering depends on: equal inputs, equal rendering.
type inputs struct {
	digest uint64
	schema *prune.Node // of the member
}

// rendering is what came of inputs, without the object.
type rendering struct {
	inputs inputs
	told   rendered
}

// digest is a hash over all that render reads of template, decision and cluster.
// What scripts, a quota's steps or the copy itself go into has none.
func (d *decision) digest(t *template, cluster *placement.Cluster) (uint64, error) {
	in := struct {
		UID, Binding, Stamp         string
		Content                     uint64
		Divided                     bool
		Replicas                    int32
		Served, NodeCluster, InNode string
		Share                       *rollout.Budget
		Bounds                      *replicas.Autoscaler
		Disruption                  map[string]int32
		Overrides                   []uint64
		Kept                        map[string]string // labels of an evicted copy's state
		Cluster                     *placement.Cluster
	}{
		UID: string(t.UID), Content: t.content, Binding: d.bindingID, Stamp: d.stamp, Divided: d.divided,
		Replicas: d.targets[cluster.Name], Disruption: map[string]int32{}, Overrides: d.overrides.Versions(), Kept: d.eviction.labelsFor(cluster.Name),
	}
	if n := d.node; n != nil {
		in.Served, in.NodeCluster, in.InNode = n.served, n.cluster, n.name
	}
	if share, ok := d.shares[cluster.Name]; ok {
		in.Share = &share
	}
	if bounds, ok := d.bounds[cluster.Name]; ok {
		in.Bounds = &bounds
	}
	for field, parts := range d.disruption {
		in.Disruption[field] = parts[cluster.Name]
	}
	if !d.overrides.Empty() {
		in.Cluster = cluster
	}
	return hashOf(in)
}

// inputsOf a rendering for this member; nil when it cannot be remembered.
func (m *member) inputsOf(key marks.Key, t *template, d *decision, cluster *placement.Cluster) *inputs {
	if d.revise != nil || d.quota != nil || key.GroupKind() == crdKind || m.engine.interpreter.Scripted(key.GroupVersionKind, interpreter.Retain) {
		return nil
	}
	in := &inputs{}
	if m.schemas != nil {
		var ok bool
		if in.schema, ok = m.schemas.peek(key.GroupVersionKind); !ok {
			return nil
		}
	}
	var err error
	if in.digest, err = d.digest(t, cluster); err != nil {
		return nil
	}
	return in
}

// remember keeps what came of inputs.
func (m *member) remember(key marks.Key, in *inputs, r *rendered) {
	if in == nil {
		return
	}
	told := rendered{hash: r.hash, divided: r.divided, replicas: r.replicas, pods: r.pods, paused: r.paused, alike: r.alike}
	m.change(key, func(a *applied) { a.rendering = &rendering{*in, told} })
}

// remembered is what came of equal inputs; nil when they are others.
func (a applied) remembered(in *inputs) *rendered {
	if in == nil || a.rendering == nil || a.rendering.inputs != *in {
		return nil
	}
	told := a.rendering.told
	return &told
}

// unchanged is what the copy was told, where that follows from the inputs and
// nobody has contradicted: there is nothing to render.
func (m *member) unchanged(key marks.Key, in *inputs) (*rendered, *copyRecord) {
	there, last := m.newest(key)
	r := last.remembered(in)
	if r == nil || there == nil || !there.owned || there.held || there.DeletionTimestamp != nil || !upToDate(last, there, r.hash) {
		return nil, nil
	}
	return r, there
}
