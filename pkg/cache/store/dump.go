package store

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/pack"
)

// Dump is everything that a store holds at one moment, to be written down.
type Dump struct {
	Head, From uint64
	packer     *pack.Packer
	hot        *hotTree
	base       *base
	history    []part
}

// Dump takes the present state. It costs little; writing it does not.
func (s *Store) Dump() *Dump {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &Dump{Head: s.head, From: s.log.from, packer: s.packer, hot: s.hot.Clone(), base: s.base}
	d.history = s.log.between(s.log.from, s.head)
	return d
}

// History calls fn with the history, some events at a time, in a form that
// Restore reads.
func (d *Dump) History(fn func([]byte) error) error {
	var buf []byte
	for _, p := range d.history {
		if p.packed != nil && p.from == 0 && p.to == len(p.packed.marks) {
			buf = p.packed.block.Append(appendMarks(buf[:0], p.packed.marks))
		} else {
			buf = AppendEvents(buf[:0], d.packer, p.read(), true)
		}
		if err := fn(buf); err != nil {
			return err
		}
	}
	return nil
}

// Objects calls fn with the objects, some at a time, in a form that Restore
// reads.
func (d *Dump) Objects(fn func([]byte) error) error {
	var changes []entry
	d.hot.Ascend(func(e entry) bool {
		changes = append(changes, e)
		return true
	})
	all, _ := d.base.with(d.packer, changes)
	var buf []byte
	for _, b := range all.blocks {
		buf = b.Append(buf[:0])
		if err := fn(buf); err != nil {
			return err
		}
	}
	return nil
}

// AppendEvents writes events, with the state before each where previous is set.
func AppendEvents(dst []byte, p *pack.Packer, events []*cache.Event, previous bool) []byte {
	marks, objects := marksOf(events, previous)
	return p.Append(appendMarks(dst, marks), objects)
}

func marksOf(events []*cache.Event, previous bool) (marks []mark, objects []*cache.Object) {
	marks = make([]mark, 0, len(events))
	for _, e := range events {
		m := mark{rv: e.RV, time: e.Time.UnixNano(), kind: e.Type, hasPrev: previous && e.Prev != nil}
		if m.hasPrev {
			objects = append(objects, e.Prev)
		}
		objects = append(objects, e.Object)
		marks = append(marks, m)
	}
	return marks, objects
}

func appendMarks(dst []byte, marks []mark) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(marks)))
	for _, m := range marks {
		kind := byte(m.kind) << 1
		if m.hasPrev {
			kind |= 1
		}
		dst = append(dst, kind)
		dst = binary.LittleEndian.AppendUint64(dst, m.rv)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(m.time)) //nolint:gosec // and back
	}
	return dst
}

const markSize = 17

func loadMarks(in []byte) ([]mark, []byte, error) {
	n, used := binary.Uvarint(in)
	if used <= 0 || n > uint64(len(in)-used)/markSize {
		return nil, nil, fmt.Errorf("%w: no events", pack.ErrMalformed)
	}
	in = in[used:]
	marks := make([]mark, n)
	for i := range marks {
		m := in[i*markSize:]
		marks[i] = mark{
			kind: cache.EventType(m[0] >> 1), hasPrev: m[0]&1 != 0,
			rv: binary.LittleEndian.Uint64(m[1:]), time: int64(binary.LittleEndian.Uint64(m[9:])), //nolint:gosec // and back
		}
		if marks[i].kind > cache.Deleted {
			return nil, nil, fmt.Errorf("%w: event of kind %d", pack.ErrMalformed, marks[i].kind)
		}
	}
	return marks, in[int(n)*markSize:], nil //nolint:gosec // bounded
}

// Restore fills an empty store from a Dump and what came after it. Nobody uses
// the store yet.
type Restore struct {
	store    *Store
	last     cache.Key
	clusters map[cache.ClusterName]cache.ClusterName
}

// Gap is a range of RVs, both ends excluded, that a process before may have
// given out for moments which were not restored: they are expired.
type Gap struct {
	After  uint64 `json:"after"`
	Before uint64 `json:"before"`
}

// maxGaps bounds how many are told apart: one a restart, while the history
// reaches back to before it.
const maxGaps = 64

// Gaps lists, in order, those that the history reaches back to. They must
// outlive the next restart as well.
func (s *Store) Gaps() []Gap {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, g := range s.gaps {
		if g.Before > s.log.from {
			return slices.Clone(s.gaps[i:])
		}
	}
	return nil
}

// Restore begins with the moments that a Dump was of.
func (s *Store) Restore(head, from uint64) *Restore {
	s.head = head
	s.log.from = from
	return &Restore{store: s, clusters: map[cache.ClusterName]cache.ClusterName{}}
}

// History takes what Dump.History gave.
func (r *Restore) History(in []byte) error {
	s := r.store
	p := &packedEvents{}
	var err error
	if p.marks, in, err = loadMarks(in); err != nil {
		return err
	}
	if p.block, _, err = s.packer.Load(in); err != nil {
		return err
	}
	objects := len(p.marks)
	last := s.log.from
	if n := len(s.log.chunks); n > 0 {
		last = s.log.chunks[n-1].rv(s.log.chunks[n-1].last())
	}
	for _, m := range p.marks {
		if m.hasPrev {
			objects++
		}
		if m.rv <= last || m.rv > s.head {
			return fmt.Errorf("%w: event %d after %d", pack.ErrMalformed, m.rv, last)
		}
		last = m.rv
	}
	if objects != p.block.Len() || len(p.marks) == 0 {
		return fmt.Errorf("%w: %d events with %d objects", pack.ErrMalformed, len(p.marks), p.block.Len())
	}
	size := int64(p.block.Size() + packedOverhead*len(p.marks))
	s.log.starts = append(s.log.starts, s.log.end())
	s.log.chunks = append(s.log.chunks, &chunk{packed: p, bytes: size})
	s.log.count += len(p.marks)
	s.log.bytes += size
	return nil
}

// Objects takes what Dump.Objects gave.
func (r *Restore) Objects(in []byte) error {
	s := r.store
	b, _, err := s.packer.LoadEach(in, func(o *cache.Object) error {
		if s.count > 0 && r.last.Compare(o.Key) >= 0 {
			return fmt.Errorf("%w: %s after %s", pack.ErrMalformed, o.Key, r.last)
		}
		r.last = o.Key
		s.count++
		cluster, known := r.clusters[o.Cluster]
		if !known { // what a map has as its key is kept, and this is not to be
			cluster = cache.ClusterName(strings.Clone(string(o.Cluster)))
			r.clusters[cluster] = cluster
		}
		s.counts[cluster]++
		s.bytes += int64(o.Body.Len())
		return nil
	})
	if err != nil {
		return err
	}
	r.last = cache.Key{Namespace: strings.Clone(r.last.Namespace), Name: strings.Clone(r.last.Name)}
	if b.Len() > 0 {
		s.base.blocks = append(s.base.blocks, b)
	}
	return nil
}

// Events takes events that AppendEvents has written without the state before.
func (r *Restore) Events(in []byte) error {
	events, err := LoadEvents(r.store.packer, in)
	if err != nil {
		return err
	}
	for _, e := range events {
		if err := r.store.Follows(e); err != nil {
			return err
		}
		r.store.Commit(e)
	}
	if r.store.Pressed() {
		r.store.Pack()
	}
	return nil
}

// Done ends the restoring: now is the RV at which the store goes on. What the
// process before may have given out above what is restored, nobody knows any
// more: these RVs are expired, as are those of the gaps that were there before.
func (r *Restore) Done(restored, now uint64, gaps []Gap) {
	r.store.gaps = slices.Clone(gaps)
	r.store.Skip(max(restored, r.store.head), now)
}

// Skip moves the head to an RV. Others may have been given out between the two
// of which nobody knows any more: they are expired.
func (s *Store) Skip(known, now uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = append(slices.Clone(s.gaps), Gap{After: known, Before: now})
	for len(s.gaps) > maxGaps { // the oldest two become one
		s.gaps[1].After = s.gaps[0].After
		s.gaps = s.gaps[1:]
	}
	s.head, s.current = now, nil
	s.wakeLocked()
}

// lost says that an RV may be of a moment that was not restored.
func (s *Store) lost(rv uint64) bool {
	return slices.ContainsFunc(s.gaps, func(g Gap) bool { return rv > g.After && rv < g.Before })
}

// Deleted lists the objects whose deletion is the last that the history knows of
// their key, and when it was.
func (s *Store) Deleted() (objects []*cache.Object, at []time.Time) {
	s.mu.RLock()
	parts := s.log.between(s.log.from, s.head)
	s.mu.RUnlock()
	type end struct {
		object *cache.Object
		at     time.Time
	}
	last := map[cache.Key]end{}
	for _, p := range parts {
		for _, e := range p.read() {
			if e.Type == cache.Deleted {
				last[e.Object.Key] = end{e.Object, e.Time}
			} else {
				delete(last, e.Object.Key)
			}
		}
	}
	keys := make([]cache.Key, 0, len(last))
	for k := range last {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, cache.Key.Compare)
	for _, k := range keys {
		objects, at = append(objects, last[k].object), append(at, last[k].at)
	}
	return objects, at
}
