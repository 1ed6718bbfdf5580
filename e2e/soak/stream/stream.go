// Package stream holds a watch to its promises: ordered, unique, without a gap,
// resumable, with bookmarks that are true.
//
//	Listed, Event, Bookmark, Ended -> Watcher -> Problems
//	all Watchers of one collection -> Agree   -> what one was told and another not
//	what was written               -> Missed  -> what a watcher was never told
//
// Everything is plain code: who reads the bytes is the caller.
package stream

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Type of an event.
type Type string

// Types.
const (
	Added    Type = "ADDED"
	Modified Type = "MODIFIED"
	Deleted  Type = "DELETED"
)

// Object is what is looked at of one.
type Object struct {
	Namespace, Name, UID string
	Version              uint64
	// N numbers the contents; it never falls. 0 where nobody numbered it.
	N int64
	// Content is compared with the source at the end.
	Content string
}

func (o Object) String() string {
	return fmt.Sprintf("%s/%s (%s, n %d, RV %d)", o.Namespace, o.Name, o.UID, o.N, o.Version)
}

// Seen is one event as it is remembered.
type Seen struct {
	Type    Type
	UID     string
	Version uint64
	N       int64
}

// segment is what was told without a list in between: every event after from,
// up to the last.
type segment struct {
	from, to uint64
	events   []Seen
}

// Watcher is what one client has been told of one collection.
type Watcher struct {
	name     string
	held     map[string]Object // by UID
	byName   map[string]string // UID by namespace and name
	last     uint64            // where to resume
	segments []segment

	Lists, Resumes, Bookmarks, Events int
	problems                          []string
}

// New watcher, which needs a list first.
func New(name string) *Watcher { return &Watcher{name: name} }

// Name of the watcher.
func (w *Watcher) Name() string { return w.name }

// Resume is the resourceVersion to go on from.
func (w *Watcher) Resume() uint64 { return w.last }

// Problems are the promises that were broken.
func (w *Watcher) Problems() []string { return w.problems }

// Held are the objects by UID.
func (w *Watcher) Held() map[string]Object { return maps.Clone(w.held) }

const mostProblems = 50

func (w *Watcher) problem(format string, args ...any) {
	if len(w.problems) < mostProblems {
		w.problems = append(w.problems, w.name+": "+fmt.Sprintf(format, args...))
	}
}

// Listed begins anew with a whole state. Time does not go back by it.
func (w *Watcher) Listed(version uint64, objects []Object) {
	if version < w.last {
		w.problem("a list of RV %d after RV %d was seen", version, w.last)
	}
	before := w.held
	w.held, w.byName, w.last = map[string]Object{}, map[string]string{}, version
	w.segments = append(w.segments, segment{from: version, to: version})
	w.Lists++
	for _, o := range objects {
		if o.Version > version {
			w.problem("the list of RV %d has %s", version, o)
		}
		if old, ok := before[o.UID]; ok {
			w.older(old, o)
		}
		w.hold(o)
	}
}

func (w *Watcher) hold(o Object) {
	key := o.Namespace + "/" + o.Name
	if other, ok := w.byName[key]; ok && other != o.UID {
		w.problem("%s has the name of %s", o, w.held[other])
	}
	w.held[o.UID], w.byName[key] = o, o.UID
}

func (w *Watcher) drop(o Object) {
	delete(w.held, o.UID)
	delete(w.byName, o.Namespace+"/"+o.Name)
}

// older complains when an object goes back.
func (w *Watcher) older(before, o Object) {
	if o.N < before.N {
		w.problem("%s goes back: it was %s", o, before)
	}
	if o.Version < before.Version {
		w.problem("%s comes after %s", o, before)
	}
}

// Event takes one event.
func (w *Watcher) Event(kind Type, o Object) {
	w.Events++
	if o.Version <= w.last {
		w.problem("%s %s after RV %d: not in order, or twice", kind, o, w.last)
	}
	before, held := w.held[o.UID]
	switch {
	case kind == Added && held:
		w.problem("ADDED %s, which is there as %s", o, before)
	case kind != Added && !held:
		w.problem("%s %s, which is not there", kind, o)
	case held && (before.Name != o.Name || before.Namespace != o.Namespace):
		w.problem("%s %s was %s", kind, o, before)
	}
	if held {
		w.older(before, o)
	}
	if kind == Deleted {
		w.drop(o)
	} else {
		w.hold(o)
	}
	w.last = max(w.last, o.Version)
	if len(w.segments) == 0 {
		w.problem("%s %s before any list", kind, o)
		return
	}
	s := &w.segments[len(w.segments)-1]
	s.events, s.to = append(s.events, Seen{kind, o.UID, o.Version, o.N}), w.last
}

// Bookmark takes a bookmark: all up to it was told.
func (w *Watcher) Bookmark(version uint64) {
	w.Bookmarks++
	if version < w.last {
		w.problem("a bookmark of RV %d after RV %d", version, w.last)
		return
	}
	w.last = version
	if len(w.segments) > 0 {
		w.segments[len(w.segments)-1].to = version
	}
}

// Ended says that the stream has ended and is taken up where it was.
func (w *Watcher) Ended() { w.Resumes++ }

// Agree compares the watchers of one collection: within what two of them were
// told, both were told the same.
func Agree(watchers []*Watcher) (problems []string) {
	told := map[uint64]Seen{}
	by := map[uint64]string{}
	for _, w := range watchers {
		for _, s := range w.segments {
			for _, e := range s.events {
				if other, ok := told[e.Version]; ok && other != e {
					problems = append(problems, fmt.Sprintf("%s was told %v, %s %v", w.name, e, by[e.Version], other))
				}
				told[e.Version], by[e.Version] = e, w.name
			}
		}
	}
	versions := slices.Sorted(maps.Keys(told))
	for _, w := range watchers {
		for _, s := range w.segments {
			problems = append(problems, s.gaps(w.name, versions, told, by)...)
		}
	}
	return problems
}

// gaps are the events within the segment that others were told.
func (s segment) gaps(name string, versions []uint64, told map[uint64]Seen, by map[uint64]string) (problems []string) {
	at, _ := slices.BinarySearch(versions, s.from+1)
	next := 0
	for ; at < len(versions) && versions[at] <= s.to; at++ {
		for next < len(s.events) && s.events[next].Version < versions[at] {
			next++
		}
		if next == len(s.events) || s.events[next].Version != versions[at] {
			problems = append(problems, fmt.Sprintf("%s was never told %v, which %s was", name, told[versions[at]], by[versions[at]]))
		}
	}
	return problems
}

// Content is what was written to an object.
type Content struct {
	UID string
	N   int64
}

// Missed are the contents that a watcher was never told. Those of before its
// last list may have gone into it.
func (w *Watcher) Missed(written []Content) (missed []Content) {
	told := map[Content]bool{}
	for _, s := range w.segments {
		for _, e := range s.events {
			told[Content{e.UID, e.N}] = true
		}
	}
	for _, c := range written {
		if !told[c] {
			missed = append(missed, c)
		}
	}
	slices.SortFunc(missed, func(a, b Content) int { return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.N, b.N)) })
	return missed
}

// Differ compares what a watcher holds with what there is, both by UID.
func Differ(held map[string]Object, there map[string]string) (problems []string) {
	for uid, content := range there {
		if o, ok := held[uid]; !ok {
			problems = append(problems, fmt.Sprintf("%s (%s) is not held", uid, content))
		} else if o.Content != content {
			problems = append(problems, fmt.Sprintf("%s is held as %q, and is %q", uid, o.Content, content))
		}
	}
	for uid, o := range held {
		if _, ok := there[uid]; !ok {
			problems = append(problems, fmt.Sprintf("%s is held and gone", o))
		}
	}
	slices.Sort(problems)
	return problems
}
