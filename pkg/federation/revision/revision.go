// Package revision keeps, in the control plane, one ReplicaSet per revision of
// a Deployment, as the deployment controller of a single cluster would: named
// by the hash of the pod template, numbered, limited by the history limit. Its
// replicas and status are the sum over the members.
//
//	Deployment, its ReplicaSets -> Next -> the ReplicaSet of today, what to create,
//	                                       renumber and delete
//
// The members' ReplicaSets carry the stamp of the revision they belong to.
package revision

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// Names of the deployment controller's conventions, which clients read.
const (
	HashLabel        = "pod-template-hash"
	NumberAnnotation = "deployment.kubernetes.io/revision"
)

// defaultHistoryLimit is what the API defaults revisionHistoryLimit to.
const defaultHistoryLimit = 10

// Hash names a pod template, as the deployment controller of Kubernetes does it
// (controller.ComputeHash, without a count of collisions). Where a member runs the
// template as it is, its Pods carry the same hash in their labels, so that the
// selector of the control plane's ReplicaSet selects them.
func Hash(podTemplate map[string]any) (string, error) {
	raw, err := json.Marshal(podTemplate)
	if err != nil {
		return "", fmt.Errorf("pod template: %w", err)
	}
	var typed corev1.PodTemplateSpec
	if err := json.Unmarshal(raw, &typed); err != nil {
		return "", fmt.Errorf("pod template: %w", err)
	}
	return hashTemplate(&typed, 0), nil
}

// hashTemplate is fnv-1a over the dump of the template and the count of
// collisions.
func hashTemplate(t *corev1.PodTemplateSpec, collisions int) string {
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%v", dump.ForHash(*t))
	if collisions > 0 {
		_, _ = h.Write([]byte{byte(collisions), byte(collisions >> 8), 0, 0, 0, 0, 0, 0})
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// Deployment is what revisions depend on.
type Deployment struct {
	Name         string
	Hash         string
	Paused       bool
	HistoryLimit *int32
}

// ReplicaSet is one of the Deployment's ReplicaSets in the control plane.
type ReplicaSet struct {
	Name   string
	UID    types.UID
	Hash   string
	Number int64
	// Desired and Present are the replicas in spec and status.
	Desired, Present int32
	Deleting         bool
}

// Stamp is "NAME/UID", as members' ReplicaSets carry it.
func (r ReplicaSet) Stamp() string { return r.Name + "/" + string(r.UID) }

// Plan is what to do next.
type Plan struct {
	// Current stands for the template of today; nil when it must be created
	// first, or when the Deployment is paused before its first revision.
	Current *ReplicaSet
	// Create names the ReplicaSet to create.
	Create string
	// Number is the revision number that Current, or what is created, must
	// have.
	Number int64
	// Delete lists ReplicaSets beyond the history limit.
	Delete []ReplicaSet
}

// Next plans. It is idempotent: with nothing to do, it only finds Current.
func Next(d Deployment, sets []ReplicaSet) Plan {
	var largest int64
	var current, newest *ReplicaSet
	for i := range sets {
		r := &sets[i]
		if r.Deleting {
			continue
		}
		largest = max(largest, r.Number)
		if newest == nil || r.Number > newest.Number {
			newest = r
		}
		if r.Hash == d.Hash {
			current = r
		}
	}
	switch {
	case current == nil && d.Paused:
		// A paused Deployment makes no revision; what runs is the newest one.
		return Plan{Current: newest, Number: largest}
	case current == nil:
		return Plan{Create: d.Name + "-" + d.Hash, Number: largest + 1}
	}
	p := Plan{Current: current, Number: current.Number}
	if current.Number < largest && !d.Paused {
		p.Number = largest + 1
	}
	p.Delete = beyondLimit(d, sets, current)
	return p
}

// beyondLimit lists the oldest ReplicaSets without replicas.
func beyondLimit(d Deployment, sets []ReplicaSet, current *ReplicaSet) []ReplicaSet {
	limit := defaultHistoryLimit
	if d.HistoryLimit != nil {
		limit = int(*d.HistoryLimit)
	}
	var old []ReplicaSet
	for _, r := range sets {
		if r.UID != current.UID && !r.Deleting {
			old = append(old, r)
		}
	}
	slices.SortFunc(old, func(a, b ReplicaSet) int { return cmp.Compare(a.Number, b.Number) })
	excess := len(old) - limit
	var out []ReplicaSet
	for _, r := range old {
		if excess <= 0 {
			break
		}
		if r.Desired == 0 && r.Present == 0 {
			out = append(out, r)
			excess--
		}
	}
	return out
}

// Counts is a ReplicaSet's share in one member.
type Counts struct {
	Desired, Replicas, FullyLabeled, Ready, Available int32
}

// Sum adds what the members report.
func Sum(parts []Counts) (s Counts) {
	for _, p := range parts {
		s.Desired += p.Desired
		s.Replicas += p.Replicas
		s.FullyLabeled += p.FullyLabeled
		s.Ready += p.Ready
		s.Available += p.Available
	}
	return s
}
