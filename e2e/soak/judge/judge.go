// Package judge decides whether a run under faults went right. It knows nothing
// of the engine: it compares what clients were told, what was recorded as
// intent, what the members' audit logs say was written, and what is there in the
// end.
//
//	clients' log ----------------+
//	bindings, read from etcd ----+-> Changes -> writes that had no reason
//	members' audit logs ---------+
//	clients' log -> Final <- templates, policies and copies at the end
//
// Everything is a pure function, with tests that doctor each log.
package judge

import (
	"fmt"
	"slices"
	"time"
)

// Policy is the kind of what places all templates of its own name.
const Policy = "PropagationPolicy"

// Key names an object of the run's namespace.
type Key struct{ Kind, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Name }

// Outcome of a client's write.
type Outcome int

// Outcomes.
const (
	// Unknown: no answer, or one that leaves it open.
	Unknown Outcome = iota
	Acknowledged
	Refused
)

// Write is one request of a client to the endpoint. Each key has one writer, and
// its writes are logged in their order.
type Write struct {
	Key
	Delete bool
	// N numbers the contents of a key; a write carries it.
	N int64
	// UID of the object, when it is known.
	UID        string
	Replicas   int64    // Deployments
	Clusters   []string // policies
	Divided    bool     // policies
	Sent, Done time.Time
	Outcome    Outcome
}

// Record is a placement as the store keeps it, and when that was seen there.
type Record struct {
	Key      // of the template
	UID      string
	Clusters []string
	Gone     bool // the binding is deleted, or notes a deleted template
	At       time.Time
}

// Change is a write that a member's audit log shows.
type Change struct {
	Member string
	Key
	User  string
	Code  int
	Verb  string
	Epoch int64
	// N, Replicas and TemplateUID are what was written, or -1 and empty.
	N           int64
	TemplateUID string
	// UID and Version are the object's afterwards, where the answer tells.
	UID     string
	Version uint64
	// Marked: the write says its epoch in the object, so that it is no no-op
	// under another one.
	Marked bool
	At     time.Time
}

func (c Change) done() bool { return c.Code >= 200 && c.Code < 300 }

func (c Change) String() string {
	return fmt.Sprintf("%s %s %s in %s (epoch %d, n %d, answered %d)", c.At.Format("15:04:05.000"), c.Verb, c.Key, c.Member, c.Epoch, c.N, c.Code)
}

// Template as the control plane has it.
type Template struct {
	Key
	UID         string
	N, Replicas int64
	Deleting    bool
	Clusters    []string // policies
	Divided     bool     // policies
}

// Copy as a member has it.
type Copy struct {
	Member string
	Key
	UID, TemplateUID string
	N, Replicas      int64
	Managed          bool
}

// Tolerance of clocks and of requests that are under way.
type Tolerance struct {
	// InFlight is how long after a record was replaced a write that goes by it
	// may still arrive.
	InFlight time.Duration
	// Late is how much later than it was made a record may be seen.
	Late time.Duration
}

// Final compares the end with what clients were told, and the copies with the
// templates. It is asked until it finds nothing.
func Final(writes []Write, templates []Template, copies []Copy) []string {
	var out []string
	there := map[Key]Template{}
	for _, t := range templates {
		there[t.Key] = t
	}
	for key, states := range possible(writes) {
		t, found := there[key]
		if !slices.ContainsFunc(states, func(s state) bool { return s.is(found, t) }) {
			out = append(out, fmt.Sprintf("%s: clients were told %v, and the control plane has %s", key, states, shown(found, t)))
		}
	}
	byKey := map[Key][]Copy{}
	for _, c := range copies {
		byKey[c.Key] = append(byKey[c.Key], c)
	}
	for key, list := range byKey {
		if _, found := there[key]; !found {
			out = append(out, fmt.Sprintf("%s has no template and is in %v", key, membersOf(list)))
		}
	}
	for key, t := range there {
		policy, placed := there[Key{Policy, key.Name}]
		if key.Kind == Policy || !placed {
			continue
		}
		if t.Deleting {
			out = append(out, fmt.Sprintf("%s is still being deleted", key))
			continue
		}
		out = append(out, arrived(t, policy, byKey[key])...)
	}
	slices.Sort(out)
	return out
}

// state that a key may be in by the end.
type state struct {
	found bool
	n     int64
}

func (s state) is(found bool, t Template) bool { return s.found == found && (!found || s.n == t.N) }

func (s state) String() string {
	if !s.found {
		return "absent"
	}
	return fmt.Sprintf("n %d", s.n)
}

func shown(found bool, t Template) string {
	if found && t.Deleting {
		return fmt.Sprintf("n %d, being deleted", t.N)
	}
	return state{found, t.N}.String()
}

// possible are the states that the answers to clients leave open.
func possible(writes []Write) map[Key][]state {
	out := map[Key][]state{}
	for _, w := range writes {
		before, known := out[w.Key]
		if !known {
			before = []state{{}}
		}
		after := state{!w.Delete, w.N}
		if w.Delete {
			after.n = 0
		}
		switch w.Outcome {
		case Acknowledged:
			out[w.Key] = []state{after}
		case Unknown:
			if !slices.Contains(before, after) {
				before = append(slices.Clone(before), after)
			}
			out[w.Key] = before
		case Refused:
			out[w.Key] = before
		}
	}
	return out
}

// arrived compares the copies of a template that is there.
func arrived(t, policy Template, copies []Copy) (out []string) {
	var sum int64
	for _, c := range copies {
		at := fmt.Sprintf("%s in %s", t.Key, c.Member)
		sum += c.Replicas
		switch {
		case !slices.Contains(policy.Clusters, c.Member):
			out = append(out, fmt.Sprintf("%s is left where its policy (%v) does not place it", at, policy.Clusters))
		case !c.Managed:
			out = append(out, at+" has lost its marks")
		case c.TemplateUID != t.UID:
			out = append(out, fmt.Sprintf("%s belongs to template %s, not to %s", at, c.TemplateUID, t.UID))
		case c.N != t.N:
			out = append(out, fmt.Sprintf("%s has n %d, want %d", at, c.N, t.N))
		case t.Kind == "Deployment" && !policy.Divided && c.Replicas != t.Replicas:
			out = append(out, fmt.Sprintf("%s has %d replicas, want %d", at, c.Replicas, t.Replicas))
		}
	}
	if t.Kind == "Deployment" && policy.Divided {
		if sum != t.Replicas {
			out = append(out, fmt.Sprintf("%s has %d replicas in %v, want %d", t.Key, sum, membersOf(copies), t.Replicas))
		}
		return out
	}
	for _, name := range policy.Clusters {
		if !slices.Contains(membersOf(copies), name) {
			out = append(out, fmt.Sprintf("%s is missing in %s", t.Key, name))
		}
	}
	return out
}

func membersOf(copies []Copy) (names []string) {
	for _, c := range copies {
		names = append(names, c.Member)
	}
	slices.Sort(names)
	return names
}
