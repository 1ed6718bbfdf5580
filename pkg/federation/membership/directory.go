package membership

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

// Member is one joined cluster as it stands. It is a value; its slices, maps
// and configs are shared and must not be changed.
type Member struct {
	Name string
	// UID is the confirmed identity (spec.id); "" until it is known.
	UID types.UID
	// Order is the persisted join order.
	Order int64

	// Read is the identity that reads and routes, Apply the one that writes
	// what is propagated. Nil while there are no usable credentials. Equal
	// pointers mean the same connection: a rotated token changes neither.
	Read, Apply *rest.Config
	// Impersonate is an identity that may impersonate users, where the
	// Cluster names one (ForUsers); nil then, too, while it is not usable.
	Impersonate *rest.Config
	ForUsers    bool

	// Ready follows the API's health with thresholds both ways.
	Ready bool
	// Reason and Message say why, as in the condition Ready.
	Reason, Message string
	// NotReadySince is zero while Ready.
	NotReadySince time.Time
	// Reachable is the outcome of the last probe, without thresholds.
	Reachable bool
	// EverSynced: a cache has loaded this member in full once.
	EverSynced bool
	// Absent: an operator declared it absent.
	Absent bool

	Labels                 map[string]string
	Annotations            map[string]string
	Provider, Region, Zone string
	Zones                  []string
	Taints                 []corev1.Taint
	Version                string
	Nodes                  *v1alpha1.NodeSummary
	Resources              *v1alpha1.ResourceSummary
	APIEnablements         []v1alpha1.APIEnablement
}

var memberEquality = func() conversion.Equalities {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(func(a, b time.Time) bool { return a.Equal(b) }); err != nil {
		panic(err) // the signature is wrong: a mistake in this file
	}
	return e
}()

// equal reports whether two states of a member differ in nothing that a
// subscriber could see.
func (m Member) equal(o Member) bool {
	if m.Read != o.Read || m.Apply != o.Apply || m.Impersonate != o.Impersonate {
		return false
	}
	m.Read, m.Apply, m.Impersonate = nil, nil, nil
	o.Read, o.Apply, o.Impersonate = nil, nil, nil
	return memberEquality.DeepEqual(m, o)
}

// ChangeKind says what happened to a member.
type ChangeKind uint8

// Kinds of changes.
const (
	Joined ChangeKind = iota
	Changed
	Left
)

// Change is one step in the life of a member.
type Change struct {
	Kind ChangeKind
	// Member is the new state; for Left the last one.
	Member Member
	// Old is the state before; the zero Member for Joined.
	Old Member
}

// Directory lists the members.
type Directory interface {
	// List returns the members in join order.
	List() []Member
	// Get returns one member.
	Get(name string) (Member, bool)
	// Subscribe calls fn, from one goroutine and in order, first with a
	// Joined for every present member and then with every change, until
	// cancel is called. A slow fn delays only itself; changes of one member
	// that it has not seen yet may be folded into one.
	Subscribe(fn func(Change)) (cancel func())
}

// roster is the Directory.
type roster struct {
	mu      sync.RWMutex
	members map[string]Member
	subs    map[*subscription]struct{}
}

func newRoster() *roster {
	return &roster{members: map[string]Member{}, subs: map[*subscription]struct{}{}}
}

// List implements Directory.
func (r *roster) List() []Member {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sortedLocked()
}

func (r *roster) sortedLocked() []Member {
	out := make([]Member, 0, len(r.members))
	for _, m := range r.members {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Get implements Directory.
func (r *roster) Get(name string) (Member, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m, ok := r.members[name]
	return m, ok
}

// Subscribe implements Directory.
func (r *roster) Subscribe(fn func(Change)) func() {
	s := &subscription{wake: make(chan struct{}, 1), done: make(chan struct{})}
	r.mu.Lock()
	for _, m := range r.sortedLocked() {
		s.push(Change{Kind: Joined, Member: m})
	}
	r.subs[s] = struct{}{}
	r.mu.Unlock()
	go s.run(fn)
	var once sync.Once
	return func() {
		once.Do(func() {
			r.mu.Lock()
			delete(r.subs, s)
			r.mu.Unlock()
			close(s.done)
		})
	}
}

// set records a member and tells the subscribers when it differs.
func (r *roster) set(m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.members[m.Name]
	if known && old.equal(m) {
		return
	}
	r.members[m.Name] = m
	c := Change{Kind: Joined, Member: m}
	if known {
		c = Change{Kind: Changed, Member: m, Old: old}
	}
	for s := range r.subs {
		s.push(c)
	}
}

// remove forgets a member and tells the subscribers.
func (r *roster) remove(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.members[name]
	if !known {
		return
	}
	delete(r.members, name)
	for s := range r.subs {
		s.push(Change{Kind: Left, Member: old, Old: old})
	}
}

// subscription is the queue of one subscriber.
type subscription struct {
	mu    sync.Mutex
	queue []Change
	wake  chan struct{}
	done  chan struct{}
}

// push queues a change. A Changed after an unseen Joined or Changed of the
// same member replaces its state, so that the queue is bounded by the number
// of members and their comings and goings.
func (s *subscription) push(c Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Kind == Changed {
		for i := len(s.queue) - 1; i >= 0; i-- {
			if s.queue[i].Member.Name != c.Member.Name {
				continue
			}
			if s.queue[i].Kind != Left {
				s.queue[i].Member = c.Member
				return
			}
			break
		}
	}
	s.queue = append(s.queue, c)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscription) pop() (Change, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		s.queue = nil
		return Change{}, false
	}
	c := s.queue[0]
	s.queue = s.queue[1:]
	return c, true
}

func (s *subscription) run(fn func(Change)) {
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		}
		for c, ok := s.pop(); ok; c, ok = s.pop() {
			select {
			case <-s.done:
				return
			default:
			}
			fn(c)
		}
	}
}
