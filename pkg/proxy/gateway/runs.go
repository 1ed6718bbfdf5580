package gateway

import (
	"iter"
	"slices"

	apiselection "k8s.io/apimachinery/pkg/selection"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// ascend walks a snapshot in runs, of single objects where it has none.
func ascend(snap cache.Snapshot, from cache.Key, fn func(cache.Run) bool) {
	if packed, ok := snap.(cache.Runs); ok {
		packed.AscendRuns(from, fn)
		return
	}
	snap.Ascend(from, func(o *cache.Object) bool { return fn(cache.Run{Objects: []*cache.Object{o}}) })
}

// runs walks the matching objects of a snapshot from a key on. A pack comes as
// a whole where all of it matches for certain.
func (s *selection) runs(snap cache.Snapshot, from cache.Key, namespaced bool) iter.Seq[cache.Run] {
	if first := (cache.Key{Namespace: s.namespace}); s.namespace != "" && from.Compare(first) < 0 {
		from = first
	}
	key, single := s.single(namespaced)
	if single && from.Compare(key) < 0 {
		from = key
	}
	mentioned := s.mentioned()
	return func(yield func(cache.Run) bool) {
		ascend(snap, from, func(r cache.Run) bool {
			if r.Pack != nil && s.takes(r.Pack) {
				return yield(r)
			}
			if r.Pack != nil && !r.Pack.Mentions(mentioned) {
				return true
			}
			matching, more := s.filter(r, key, single)
			return (len(matching) == 0 || yield(cache.Run{Objects: matching})) && more
		})
	}
}

// takes says that a whole pack matches, as can be told without reading it.
func (s *selection) takes(p cache.Pack) bool {
	if !s.everything() {
		return false
	}
	if s.namespace == "" {
		return true
	}
	namespace, ok := p.Namespace()
	return ok && namespace == s.namespace
}

// valuesWanted are the operators for which an object has one of the values.
var valuesWanted = []apiselection.Operator{apiselection.In, apiselection.Equals, apiselection.DoubleEquals}

// mentioned lists texts of which an object that matches has one of each: values
// of its labels and fields, or its name.
func (s *selection) mentioned() (all [][]string) {
	if s.name != "" {
		all = append(all, []string{s.name})
	}
	requirements, _ := s.labels.Requirements()
	for _, r := range requirements {
		if slices.Contains(valuesWanted, r.Operator()) {
			all = append(all, r.ValuesUnsorted())
		}
		if r.Operator() == apiselection.Exists {
			all = append(all, []string{r.Key()})
		}
	}
	for _, r := range s.fields.Requirements() {
		if r.Operator == apiselection.Equals || r.Operator == apiselection.DoubleEquals {
			all = append(all, []string{r.Value})
		}
	}
	return all
}

// filter gives the matching objects, and whether one that follows may match.
func (s *selection) filter(r cache.Run, key cache.Key, single bool) (matching []*cache.Object, more bool) {
	more = true
	match := func(o *cache.Object) bool {
		if s.namespace != "" && o.Key.Namespace != s.namespace || single && o.Key != key {
			more = false
		}
		return more && s.matches(o)
	}
	if r.Pack != nil {
		return r.Pack.Matching(match), more
	}
	for i, o := range r.Objects {
		switch {
		case !match(o):
		case len(matching) == i:
			matching = r.Objects[: i+1 : i+1]
		default:
			matching = append(matching, o)
		}
	}
	return matching, more
}

// objectsOf walks the objects of runs.
func objectsOf(runs iter.Seq[cache.Run]) iter.Seq[*cache.Object] {
	return func(yield func(*cache.Object) bool) {
		for run := range runs {
			for _, o := range run.All() {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// firstOf is the runs of the first objects, at most limit of them.
func firstOf(all iter.Seq[cache.Run], limit int64) iter.Seq[cache.Run] {
	return func(yield func(cache.Run) bool) {
		left := limit
		for run := range all {
			if int64(run.Len()) > left {
				run = cache.Run{Objects: run.All()[:left]}
			}
			left -= int64(run.Len())
			if run.Len() > 0 && !yield(run) || left <= 0 {
				return
			}
		}
	}
}
