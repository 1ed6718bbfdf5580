package prune

import (
	"maps"
	"slices"
	"strings"
)

// Prune removes from an object, which the caller owns, what the tree does not
// know, and returns the names of what it has removed, each once. Who the object is
// and its metadata are known everywhere.
func Prune(object map[string]any, tree *Node) []string {
	if tree == nil {
		return nil
	}
	dropped := map[string]struct{}{}
	for name, value := range object {
		switch name {
		case "apiVersion", "kind", "metadata":
			continue
		}
		if known := tree.child(name); known != nil {
			prune(value, known, name, dropped)
			continue
		}
		delete(object, name)
		dropped[name] = struct{}{}
	}
	return slices.Sorted(maps.Keys(dropped))
}

// child is the node of a field; nil when the field is unknown.
func (n *Node) child(name string) *Node {
	if c, ok := n.fields[name]; ok {
		return c
	}
	if n.values != nil {
		return n.values
	}
	if n.open {
		return anything
	}
	return nil
}

func prune(value any, n *Node, path string, dropped map[string]struct{}) {
	if n == anything {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		if n.items != nil && n.fields == nil && n.values == nil {
			return // not what the schema says: the server will tell
		}
		for name, below := range v {
			at := path + "." + name
			if strings.ContainsAny(name, ".[]/") {
				at = path + "[" + name + "]"
			}
			known := n.child(name)
			if known == nil {
				delete(v, name)
				dropped[at] = struct{}{}
				continue
			}
			prune(below, known, at, dropped)
		}
	case []any:
		if n.items == nil {
			return
		}
		for _, item := range v {
			prune(item, n.items, path+"[]", dropped)
		}
	}
}

// Describe names at most limit fields.
func Describe(dropped []string, limit int) string {
	if len(dropped) <= limit {
		return strings.Join(dropped, ", ")
	}
	return strings.Join(dropped[:limit], ", ") + ", ..."
}
