package gateway

import (
	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/references"
)

// listPairs relates the names at one path through lists on both sides. They are
// replaced by value: a patch holds some of them, in any order.
type listPairs struct {
	path               []string
	toSource, toServed map[string]string
}

// pairLists pairs the names that the lists of a document hold with those of the
// source. They are in the same order, since serving replaces them in place.
func pairLists(res cache.Resource, doc document, lists [][]string) (out []listPairs) {
	table := references.TableOf(res)
	if table == nil {
		return nil
	}
	for i, source := range lists {
		l := listPairs{path: table.Lists[i].Path.JSON, toSource: map[string]string{}, toServed: map[string]string{}}
		served := textsAt(nil, doc, l.path)
		if len(served) != len(source) {
			continue
		}
		for j, name := range source {
			if name != "" && served[j] != name {
				l.toSource[served[j]], l.toServed[name] = name, served[j]
			}
		}
		if len(l.toSource) > 0 {
			out = append(out, l)
		}
	}
	return out
}

// holders calls fn with every object that a path leads to, through lists.
func holders(at any, path []string, fn func(document)) {
	switch at := at.(type) {
	case []any:
		for _, item := range at {
			holders(item, path, fn)
		}
	case document:
		if len(path) == 0 {
			fn(at)
			return
		}
		holders(at[path[0]], path[1:], fn)
	}
}

func textsAt(dst []string, doc document, path []string) []string {
	last := len(path) - 1
	holders(doc, path[:last], func(d document) { dst = append(dst, text(d, path[last])) })
	return dst
}

func replaceTexts(doc document, path []string, by map[string]string) {
	last := len(path) - 1
	holders(doc, path[:last], func(d document) {
		if to, ok := by[text(d, path[last])]; ok {
			d[path[last]] = to
		}
	})
}

// descend is the object at a path of objects; nil when there is none.
func descend(doc document, path []string) document {
	for _, key := range path {
		doc = child(doc, key)
	}
	return doc
}
