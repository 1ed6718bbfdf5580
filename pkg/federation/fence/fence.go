// Package fence decides whether a control plane may write to a member.
//
//	record (control plane's etcd)   mark (one object in each member)
//	        \________ Decide ________/  -> Pass, Claim, Behind, Foreign
//
// Before a control plane writes anything that is based on newer state, it
// raises its record, and then the mark of the member. Whatever was ever written
// to a member therefore rests on state that an etcd with the member's mark in
// its record holds. An etcd that was restored from a backup has not got it, and
// a leader that was replaced does not get its next step into the record.
package fence

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Mark is what a member holds of the control plane that writes to it.
type Mark struct {
	ControlPlane string `json:"controlPlane"`
	// Epoch counts the terms of leaders, Term names one: two histories of one
	// control plane may count alike.
	Epoch int64  `json:"epoch"`
	Term  string `json:"term"`
	// Step counts raises within the term.
	Step int64 `json:"step"`
	// Revision is that of the control plane's etcd which writes up to now may
	// be based on.
	Revision uint64 `json:"revision"`
}

// Term is a term of a leader and how far it got.
type Term struct {
	Epoch int64  `json:"epoch"`
	Name  string `json:"name"`
	Steps int64  `json:"steps"`
}

// Record is what the control plane knows of its own marks. It is written before
// they are.
type Record struct {
	Epoch int64  `json:"epoch"`
	Term  string `json:"term"`
	Step  int64  `json:"step"`
	// Past are former terms, the latest last.
	Past []Term `json:"past,omitempty"`
	// Forgotten is the highest epoch of which nothing is remembered.
	Forgotten int64 `json:"forgotten,omitempty"`
	// Accepted is the id of the last acceptance that was carried out.
	Accepted string `json:"accepted,omitempty"`
	// Awaited are clusters that could not be asked then: what they hold of
	// epochs before AcceptedEpoch is accepted too.
	Awaited       []string `json:"awaited,omitempty"`
	AcceptedEpoch int64    `json:"acceptedEpoch,omitempty"`
}

// remembered bounds Record.Past.
const remembered = 100

// Verdict on a member's mark.
type Verdict int

const (
	// Pass: the mark is one of ours.
	Pass Verdict = iota
	// Claim: there is no mark yet.
	Claim
	// Behind: the member has been written to by a later or another history of
	// this control plane.
	Behind
	// Foreign: another control plane writes to the member.
	Foreign
)

func (v Verdict) String() string { return [...]string{"Pass", "Claim", "Behind", "Foreign"}[v] }

// Allowed says whether the member may be written to.
func (v Verdict) Allowed() bool { return v == Pass || v == Claim }

// Decide about one member; mark is nil when it holds none. The reason is for
// people.
func Decide(r Record, controlPlane, cluster string, mark *Mark) (Verdict, string) {
	switch {
	case mark == nil:
		return Claim, "no control plane has written to the cluster yet"
	case mark.ControlPlane != controlPlane:
		return Foreign, fmt.Sprintf("the control plane %s writes to the cluster, this one is %s", mark.ControlPlane, controlPlane)
	}
	if why := r.lacks(*mark); why != "" {
		if mark.Epoch < r.AcceptedEpoch && slices.Contains(r.Awaited, cluster) {
			return Pass, "accepted before the cluster could be asked"
		}
		return Behind, why
	}
	return Pass, "the mark is known"
}

// lacks says what of a mark is not known here; "" when everything is.
func (r Record) lacks(m Mark) string {
	if m.Epoch > r.Epoch {
		return fmt.Sprintf("the cluster was written to in epoch %d, this control plane has only come to epoch %d", m.Epoch, r.Epoch)
	}
	if m.Epoch <= r.Forgotten {
		return ""
	}
	for _, t := range append(slices.Clone(r.Past), Term{Epoch: r.Epoch, Name: r.Term, Steps: r.Step}) {
		if t.Epoch != m.Epoch || t.Name != m.Term {
			continue
		}
		if m.Step > t.Steps {
			return fmt.Sprintf("the cluster was written to up to step %d of epoch %d, this control plane knows %d", m.Step, m.Epoch, t.Steps)
		}
		return ""
	}
	return fmt.Sprintf("the cluster was written to in a term of epoch %d (%s) that this control plane does not know", m.Epoch, m.Term)
}

// Open begins a term. The name must be new.
func (r Record) Open(name string) Record {
	out := r.remember()
	out.Epoch, out.Term, out.Step = r.Epoch+1, name, 0
	return out
}

func (r Record) remember() Record {
	out := r
	out.Past, out.Awaited = slices.Clone(r.Past), slices.Clone(r.Awaited)
	if r.Term == "" {
		return out
	}
	out.Past = append(out.Past, Term{Epoch: r.Epoch, Name: r.Term, Steps: r.Step})
	return out.forget()
}

// forget keeps Past short. What is dropped counts as known: a member that has
// not been written to for so long is no proof of another history.
func (r Record) forget() Record {
	for len(r.Past) > remembered {
		r.Forgotten = max(r.Forgotten, r.Past[0].Epoch)
		r.Past = r.Past[1:]
	}
	return r
}

// Raise is the next step of the term.
func (r Record) Raise() Record {
	out := r
	out.Step++
	return out
}

// Mark is what a member is given at the present step.
func (r Record) Mark(controlPlane string, revision uint64) Mark {
	return Mark{ControlPlane: controlPlane, Epoch: r.Epoch, Term: r.Term, Step: r.Step, Revision: revision}
}

// Accept begins a term after an operator has accepted that what the members
// hold goes beyond this control plane's state. seen are their marks, awaited
// the clusters that could not be asked: because of them the epoch jumps to the
// time in seconds, which is past all terms that may have been lost with them.
func (r Record) Accept(id, term string, seen []Mark, awaited []string, seconds int64) Record {
	out := r.remember()
	highest := r.Epoch
	for _, m := range seen {
		highest = max(highest, m.Epoch)
		if out.lacksTerm(m) {
			out.Past = append(out.Past, Term{Epoch: m.Epoch, Name: m.Term, Steps: m.Step})
		}
	}
	out = out.forget()
	if len(awaited) > 0 {
		highest = max(highest, seconds)
	}
	out.Epoch, out.Term, out.Step = highest+1, term, 0
	out.Accepted, out.Awaited, out.AcceptedEpoch = id, slices.Clone(awaited), out.Epoch
	return out
}

func (r *Record) lacksTerm(m Mark) bool {
	for i, t := range r.Past {
		if t.Epoch == m.Epoch && t.Name == m.Term {
			r.Past[i].Steps = max(t.Steps, m.Step)
			return false
		}
	}
	return true
}

// Key is where a ConfigMap holds a mark or a record.
const Key = "fence"

// Encode writes a mark or a record as the data of a ConfigMap.
func Encode[T Mark | Record](v T) (map[string]string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the fence: %w", err)
	}
	return map[string]string{Key: string(raw)}, nil
}

// Decode reads what Encode wrote.
func Decode[T Mark | Record](data map[string]string) (T, error) {
	var v T
	raw, ok := data[Key]
	if !ok {
		return v, fmt.Errorf("the ConfigMap has no key %q", Key)
	}
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return v, fmt.Errorf("the fence %.100q cannot be read: %w", raw, err)
	}
	return v, nil
}
