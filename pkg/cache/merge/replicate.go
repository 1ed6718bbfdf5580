package merge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/journal"
	"github.com/isthmus-dev/isthmus/pkg/cache/store"
)

// Kinds of frames that only a stream to another process has, beside those of
// the files: a stream begins with a complete state (state, history, objects,
// end) or, where the other has the beginning, with resumed.
const (
	frameReplica byte = 'R' // sources, head and gaps as they are after the events before it
	frameResumed byte = 'M'
	frameEnd     byte = 'Z' // of the complete state
)

// replicaState is what a process that follows has beside objects and events.
type replicaState struct {
	Head    uint64                              `json:"head"`
	From    uint64                              `json:"from,omitempty"`
	Gaps    []store.Gap                         `json:"gaps,omitempty"`
	Pending bool                                `json:"pending,omitempty"`
	Sources map[cache.ClusterName]replicaSource `json:"sources,omitempty"`
	Gone    []cache.ClusterName                 `json:"gone,omitempty"`
}

// replicaSource is the state of a source as far as readers are told of it or a
// feed needs it to go on.
type replicaSource struct {
	Order      int    `json:"order"`
	Position   uint64 `json:"position"`
	Synced     bool   `json:"synced"`
	Connected  bool   `json:"connected"`
	EverSynced bool   `json:"everSynced"`
	Absent     bool   `json:"absent,omitempty"`
	Since      int64  `json:"since"` // Unix nanoseconds
	Heard      int64  `json:"heard"` // Unix nanoseconds
	Err        string `json:"err,omitempty"`
	UID        string `json:"uid,omitempty"` // of the cluster
}

func (s *Source) replica() replicaSource {
	st := s.state
	r := replicaSource{
		Order: s.joined, Position: st.Position, Synced: st.Synced, Connected: st.Connected,
		EverSynced: st.EverSynced, Absent: st.Absent, Since: st.Since.UnixNano(),
	}
	if !st.LastEvent.IsZero() {
		r.Heard = st.LastEvent.UnixNano()
	}
	if st.Err != nil {
		r.Err = st.Err.Error()
	}
	return r
}

func (r replicaSource) state() State {
	st := State{
		Position: r.Position, Synced: r.Synced, Connected: r.Connected,
		EverSynced: r.EverSynced, Absent: r.Absent, Since: time.Unix(0, r.Since),
	}
	if r.Heard != 0 {
		st.LastEvent = time.Unix(0, r.Heard)
	}
	if r.Err != "" {
		st.Err = errors.New(r.Err)
	}
	return st
}

// replicaState is the present state. c.mu is held.
func (c *Collection) replicaState() replicaState {
	st := replicaState{Head: c.store.Head(), Gaps: c.store.Gaps(), Pending: c.pending, Sources: map[cache.ClusterName]replicaSource{}}
	for name, s := range c.sources {
		if s.exists {
			r := s.replica()
			r.UID = string(c.Config.Identities.Get(name))
			st.Sources[name] = r
		}
	}
	return st
}

// since leaves out what a follower was told before.
func (st replicaState) since(told map[cache.ClusterName]replicaSource) replicaState {
	changed := map[cache.ClusterName]replicaSource{}
	for name, s := range st.Sources {
		was, ok := told[name]
		was.Heard = s.Heard // every event moves it; it goes along with the rest
		if !ok || was != s {
			changed[name] = s
		}
	}
	for name := range told {
		if _, ok := st.Sources[name]; !ok {
			st.Gone = append(st.Gone, name)
		}
	}
	st.Sources = changed
	return st
}

// heartbeat is how often a follower hears something at least, and how often it
// is told that nothing but positions has changed.
const heartbeat = time.Second

// tailFrame bounds the events of one frame.
const tailFrame = 64

// Out takes the frames of a stream.
type Out interface {
	Write(kind byte, payload []byte) error
	Flush() error
}

// Stream writes what happens after an RV to another process, and a complete
// state first where that is not known any more, until ctx ends or the other is
// too slow. holds is asked before anything is handed over.
func (c *Collection) Stream(ctx context.Context, out Out, from uint64, now clock.WithTicker, holds func() error) error {
	t, err := c.tail(out, from)
	if err != nil {
		return err
	}
	tick := now.NewTicker(heartbeat)
	defer tick.Stop()
	beat := true
	for {
		moved := c.changed()
		if err := holds(); err != nil {
			return err
		}
		if err := t.send(beat); err != nil {
			return err
		}
		select {
		case <-moved:
			beat = false
		case <-tick.C():
			beat = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tail is how far a follower has got.
type tail struct {
	c    *Collection
	out  Out
	at   uint64
	told map[cache.ClusterName]replicaSource
}

// tail begins a stream: behind an RV, or with a complete state. From 0 it is
// always that: it repairs what does not go on from a moment of this process.
func (c *Collection) tail(out Out, from uint64) (*tail, error) {
	t := &tail{c: c, out: out, at: from, told: map[cache.ClusterName]replicaSource{}}
	if _, err := c.store.Since(from); err != nil || from == 0 {
		return t, t.complete()
	}
	return t, out.Write(frameResumed, nil)
}

// complete writes everything that there is.
func (t *tail) complete() error {
	c := t.c
	c.mu.Lock()
	c.flushLocked()
	st, dump := c.replicaState(), c.store.Dump()
	c.mu.Unlock()
	st.From = dump.From
	if err := t.state(st); err != nil {
		return err
	}
	if err := dump.History(func(b []byte) error { return t.out.Write(frameHistory, b) }); err != nil {
		return fmt.Errorf("complete state: %w", err)
	}
	if err := dump.Objects(func(b []byte) error { return t.out.Write(frameObjects, b) }); err != nil {
		return fmt.Errorf("complete state: %w", err)
	}
	t.at, t.told = dump.Head, st.Sources
	return errors.Join(t.out.Write(frameEnd, nil), t.out.Flush())
}

func (t *tail) state(st replicaState) error {
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return t.out.Write(frameReplica, b)
}

// send writes what has happened, and the state after it. What is written was
// recorded before, so that no follower is ahead of what this process itself
// would go on from.
func (t *tail) send(beat bool) error {
	c := t.c
	c.mu.Lock()
	c.record()
	st := c.replicaState()
	news, err := c.store.Since(t.at)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if news.Head == t.at && !beat {
		if d := st.since(t.told); len(d.Sources) == 0 && len(d.Gone) == 0 {
			return nil
		}
	}
	err = news.Each(func(events []*cache.Event) error {
		for len(events) > 0 {
			n := min(len(events), tailFrame)
			if err := t.out.Write(frameEvents, store.AppendEvents(nil, c.store.Packer(), events[:n], false)); err != nil {
				return err
			}
			events = events[n:]
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.state(st.since(t.told)); err != nil {
		return err
	}
	t.at, t.told = news.Head, st.Sources
	return t.out.Flush()
}

var _ Out = &journal.Writer{}
