// Package placement decides which policy speaks for a template, and from that
// policy and the clusters where the template runs and with how many replicas.
// Everything here is a pure function of its input.
//
//	template, policies -> Index.Match -> policy
//	policy, clusters, present targets -> Place -> targets, reason
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

// DefaultPolicyLabel marks policies that are in force only as long as no other
// policy speaks for a template: their claim is never sticky.
const DefaultPolicyLabel = "isthmus.dev/default-policy"

// Policy is a PropagationPolicy, or a ClusterPropagationPolicy when Namespace
// is empty.
type Policy struct {
	Namespace, Name string
	UID             types.UID
	Default         bool
	Spec            policyv1alpha1.PropagationSpec
}

func (p *Policy) priority() int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// Template is what a policy is matched with.
type Template struct {
	APIVersion, Kind string
	Namespace, Name  string
	Labels           labels.Set
	// ExactName is set for templates that only a selector with their name
	// may match.
	ExactName bool
}

// specificity says by what a selector has matched; larger is more specific.
type specificity int

const (
	byKind specificity = iota + 1
	byLabel
	byName
)

// slot is where a selector is filed: namespace and name may be empty.
type slot struct {
	apiVersion, kind, namespace, name string
}

type entry struct {
	policy   *Policy
	labels   labels.Selector // nil matches everything
	specific specificity
}

// Index finds the policies of a template without looking at the others.
type Index struct {
	mu     sync.RWMutex
	slots  map[slot][]entry
	kinds  map[schema.GroupVersionKind]int
	byUID  map[types.UID]*Policy
	byName map[types.NamespacedName]*Policy
}

// NewIndex files policies. The error names the policies with an unusable
// selector; the others are in the index all the same.
func NewIndex(policies []*Policy) (*Index, []error) {
	ix := &Index{
		slots:  map[slot][]entry{},
		kinds:  map[schema.GroupVersionKind]int{},
		byUID:  map[types.UID]*Policy{},
		byName: map[types.NamespacedName]*Policy{},
	}
	var errs []error
	for _, p := range policies {
		errs = append(errs, ix.Put(p)...)
	}
	return ix, errs
}

// Put files a policy in place of the one of its name. A selector that cannot be
// used is reported and left out.
func (ix *Index) Put(p *Policy) (errs []error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.drop(types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	ix.byUID[p.UID] = p
	ix.byName[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = p
	for i, s := range p.Spec.ResourceSelectors {
		if err := ix.file(p, s); err != nil {
			errs = append(errs, fmt.Errorf("policy %s/%s: resourceSelectors[%d]: %w", p.Namespace, p.Name, i, err))
		}
	}
	return errs
}

// Drop takes a policy out.
func (ix *Index) Drop(namespace, name string) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.drop(types.NamespacedName{Namespace: namespace, Name: name})
}

func (ix *Index) drop(name types.NamespacedName) {
	p := ix.byName[name]
	if p == nil {
		return
	}
	delete(ix.byName, name)
	if ix.byUID[p.UID] == p {
		delete(ix.byUID, p.UID)
	}
	for _, s := range p.Spec.ResourceSelectors {
		at, gvk, err := place(p, s)
		if err != nil {
			continue
		}
		before := len(ix.slots[at])
		left := slices.DeleteFunc(ix.slots[at], func(e entry) bool { return e.policy == p })
		if ix.slots[at] = left; len(left) == 0 {
			delete(ix.slots, at)
		}
		if ix.kinds[gvk] -= before - len(left); ix.kinds[gvk] <= 0 {
			delete(ix.kinds, gvk)
		}
	}
}

// place is where a selector is filed.
func place(p *Policy, s policyv1alpha1.ResourceSelector) (slot, schema.GroupVersionKind, error) {
	at := slot{apiVersion: s.APIVersion, kind: s.Kind, namespace: s.Namespace, name: s.Name}
	if p.Namespace != "" {
		if s.Namespace != "" && s.Namespace != p.Namespace {
			return at, schema.GroupVersionKind{}, fmt.Errorf("namespace %q is not the policy's own: use a ClusterPropagationPolicy", s.Namespace)
		}
		at.namespace = p.Namespace
	}
	gv, err := schema.ParseGroupVersion(s.APIVersion)
	if err != nil {
		return at, schema.GroupVersionKind{}, fmt.Errorf("apiVersion: %w", err)
	}
	return at, gv.WithKind(s.Kind), nil
}

func (ix *Index) file(p *Policy, s policyv1alpha1.ResourceSelector) error {
	at, gvk, err := place(p, s)
	if err != nil {
		return err
	}
	e := entry{policy: p, specific: byKind}
	switch {
	case s.Name != "":
		e.specific = byName
	case s.LabelSelector != nil:
		sel, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
		if err != nil {
			return fmt.Errorf("labelSelector: %w", err)
		}
		e.specific, e.labels = byLabel, sel
	}
	ix.slots[at] = append(ix.slots[at], e)
	ix.kinds[gvk]++
	return nil
}

// Kinds lists the kinds that the policies name.
func (ix *Index) Kinds() []schema.GroupVersionKind {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	out := make([]schema.GroupVersionKind, 0, len(ix.kinds))
	for k := range ix.kinds {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	return out
}

// Policy finds a policy by its UID.
func (ix *Index) Policy(uid types.UID) (*Policy, bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	p, ok := ix.byUID[uid]
	return p, ok
}

// Match finds the policy that speaks for a template. claimedBy is the UID of
// the policy that spoke for it last: its claim holds as long as it matches,
// against everything but a default policy's replacement or a policy of higher
// rank with preemption.
func (ix *Index) Match(t Template, claimedBy types.UID) (*Policy, bool) {
	ix.mu.RLock()
	defer ix.mu.RUnlock()
	found := ix.candidates(t)
	if len(found) == 0 {
		return nil, false
	}
	best := slices.MaxFunc(found, compareRank)
	held, ok := heldClaim(found, claimedBy)
	if !ok {
		return best.policy, true
	}
	var preempting []entry
	for _, e := range found {
		if e.policy.Spec.Preemption == policyv1alpha1.PreemptAlways && preempts(e.policy, held.policy) {
			preempting = append(preempting, e)
		}
	}
	if len(preempting) > 0 {
		return slices.MaxFunc(preempting, compareRank).policy, true
	}
	return held.policy, true
}

func (ix *Index) candidates(t Template) []entry {
	at := slot{apiVersion: t.APIVersion, kind: t.Kind}
	namespaces, names := []string{""}, []string{"", t.Name}
	if t.Namespace != "" {
		namespaces = append(namespaces, t.Namespace)
	}
	var found []entry
	for _, at.namespace = range namespaces {
		for _, at.name = range names {
			for _, e := range ix.slots[at] {
				if t.ExactName && e.specific != byName {
					continue
				}
				if e.labels == nil || e.labels.Matches(t.Labels) {
					found = append(found, e)
				}
			}
		}
	}
	return found
}

func heldClaim(found []entry, claimedBy types.UID) (entry, bool) {
	for _, e := range found {
		if e.policy.UID == claimedBy && claimedBy != "" && !e.policy.Default {
			return e, true
		}
	}
	return entry{}, false
}

// preempts: a namespace's policy beats a cluster policy whatever the
// priorities, never the other way round; otherwise strictly higher priority.
func preempts(a, b *Policy) bool {
	if (a.Namespace != "") != (b.Namespace != "") {
		return a.Namespace != ""
	}
	return a.priority() > b.priority()
}

// compareRank orders entries from the weakest to the strongest: the namespace's
// own policy, priority, how exactly the selector matches, the lower name.
func compareRank(a, b entry) int {
	boolean := func(v bool) int {
		if v {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(boolean(!a.policy.Default), boolean(!b.policy.Default)),
		cmp.Compare(boolean(a.policy.Namespace != ""), boolean(b.policy.Namespace != "")),
		cmp.Compare(a.policy.priority(), b.policy.priority()),
		cmp.Compare(a.specific, b.specific),
		cmp.Compare(b.policy.Name, a.policy.Name),
	)
}
