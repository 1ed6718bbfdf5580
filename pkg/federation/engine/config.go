// Package engine propagates templates of the control plane to the members and
// brings their status back.
//
//	template, policies, clusters -> placement -> binding (etcd)
//	template + binding + overrides -> render -> server-side apply, one queue
//	                                   per member
//	copies in members (label-selected watches) -> drift, aggregate -> status
//
// It is the only writer of bindings, of the status of templates, and of what
// it applies. It writes nothing before all caches are full, and deletes in a
// member only on recorded intent, read live.
package engine

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/watchdog"
)

// Member is a joined cluster as the engine needs it.
type Member struct {
	Name string
	// UID is the confirmed identity of the cluster.
	UID string
	// Apply is the identity that writes. Equal pointers mean the same
	// connection. Nil while there are no credentials.
	Apply *rest.Config
	Ready bool
	// NotReadySince is zero while Ready.
	NotReadySince time.Time

	Labels           map[string]string
	Provider, Region string
	Zones            []string
	Taints           []corev1.Taint
	// Free is what new Pods can ask for; nil when it is not known.
	Free corev1.ResourceList
	// Served lists what the member serves; empty while that is not known.
	Served []clusterv1alpha1.APIEnablement
}

// Directory lists the members.
type Directory interface {
	// HasSynced says whether List is complete: a cluster that is not listed
	// has not joined or has left.
	HasSynced() bool
	List() []Member
	// Subscribe calls fn after each change, until cancel is called.
	Subscribe(fn func()) (cancel func())
}

// Config is what the engine needs to run.
type Config struct {
	// ControlPlane reaches the embedded control plane past the router.
	ControlPlane *rest.Config
	Members      Directory
	// ControlPlaneID marks our copies; empty means the UID of the control
	// plane's namespace kube-system.
	ControlPlaneID string
	// Breaker limits what is removed without asking.
	Breaker breaker.Limits
	// MayWrite says whether this process still leads: it is asked before every
	// write to a member, and must not block. Nil means always.
	MayWrite func() error
	// Unowned counts, per cluster, the replicas in a namespace that a selector
	// matches and no controller owns, running Pods or, for a Deployment, those of
	// ReplicaSets: a new workload of the kind is placed where that is which it will
	// adopt. Nil means that nobody knows of any.
	Unowned func(kind, namespace, selector string) map[string]int32
	// Node finds a Node by the name under which clients see it: its cluster and
	// its name there, or nothing. Nil means that nobody knows Nodes.
	Node func(served string) (cluster, name string)
	// Grace is how long an unreachable member's last status counts.
	Grace time.Duration
	// StatusInterval is the least time between two writes of a template's
	// status that are not edges.
	StatusInterval time.Duration
	// TemplateWorkers and MemberWorkers (per member) bound concurrency.
	TemplateWorkers, MemberWorkers int
	// RequestTimeout bounds a single request to a member.
	RequestTimeout time.Duration
	// Patience bounds how long a member's lists and watches may be silent.
	Patience watchdog.Limits
}

func (c *Config) complete() error {
	if c.ControlPlane == nil || c.Members == nil {
		return errors.New("federation engine: ControlPlane and Members are required")
	}
	setDefault(&c.Breaker, breaker.DefaultLimits())
	setDefault(&c.Grace, 40*time.Second)
	setDefault(&c.StatusInterval, 10*time.Second)
	setDefault(&c.RequestTimeout, 15*time.Second)
	setDefault(&c.Patience, watchdog.Default())
	setDefault(&c.TemplateWorkers, 8)
	setDefault(&c.MemberWorkers, 4)
	return nil
}

func (c *Config) mayWrite() error {
	if c.MayWrite == nil {
		return nil
	}
	return c.MayWrite()
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}
