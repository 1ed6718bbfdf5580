package app

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

// engineDirectory presents the members to the engine, which does not know
// membership.
type engineDirectory struct{ *membership.Controller }

// List implements engine.Directory. A member without a confirmed identity or
// without credentials is not one to the engine yet.
func (d engineDirectory) List() []engine.Member {
	var out []engine.Member
	for _, m := range d.Controller.List() {
		if m.UID == "" {
			continue
		}
		out = append(out, engine.Member{
			Name: m.Name, UID: string(m.UID), Apply: m.Apply,
			Ready: m.Ready, NotReadySince: m.NotReadySince,
			Labels: m.Labels, Provider: m.Provider, Region: m.Region, Zones: m.Zones, Taints: m.Taints,
			Free: free(m.Resources), Served: m.APIEnablements,
		})
	}
	return out
}

// Subscribe implements engine.Directory.
func (d engineDirectory) Subscribe(fn func()) (cancel func()) {
	return d.Controller.Subscribe(func(membership.Change) { fn() })
}

// free is what is allocatable and not allocated; nil when it is not known.
func free(s *v1alpha1.ResourceSummary) corev1.ResourceList {
	if s == nil || len(s.Allocatable) == 0 {
		return nil
	}
	out := corev1.ResourceList{}
	for name, q := range s.Allocatable {
		left := q.DeepCopy()
		if used, ok := s.Allocated[name]; ok {
			left.Sub(used)
		}
		if pending, ok := s.Allocating[name]; ok {
			left.Sub(pending)
		}
		if left.Sign() < 0 {
			left.Set(0)
		}
		out[name] = left
	}
	return out
}
