package engine

import (
	"maps"
	"testing"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// What is recorded in bindings stays the hash that it has always been, and what
// the engine writes on a template is told from what its users ask for.
func TestContentAndAsked(t *testing.T) {
	object := func(change func(meta, data map[string]any)) map[string]any {
		meta := map[string]any{
			"name": "c", "resourceVersion": "7", "generation": int64(3), "managedFields": []any{},
			"labels": map[string]any{"app": "<web>"}, "annotations": map[string]any{},
		}
		data := map[string]any{"k": "v & w"}
		change(meta, data)
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data, "status": map[string]any{"x": "y"}}
	}
	former := func(object map[string]any) uint64 {
		content := maps.Clone(object)
		delete(content, "status")
		meta := maps.Clone(object["metadata"].(map[string]any))
		for _, k := range []string{"resourceVersion", "managedFields", "generation"} {
			delete(meta, k)
		}
		content["metadata"] = meta
		h, err := hashOf(content)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	plain := object(func(_, _ map[string]any) {})
	content, asked, err := contentHash(plain)
	if err != nil || content != former(plain) {
		t.Fatalf("%x (%v), in bindings stands %x", content, err, former(plain))
	}
	for name, c := range map[string]struct {
		change              func(meta, data map[string]any)
		newContent, isAsked bool
	}{
		"version":    {func(m, _ map[string]any) { m["resourceVersion"] = "8" }, false, false},
		"finalizer":  {func(m, _ map[string]any) { m["finalizers"] = []any{marks.Finalizer} }, true, false},
		"claim":      {func(m, _ map[string]any) { m["labels"].(map[string]any)[marks.NamespacePolicyID] = "x" }, true, false},
		"claimed by": {func(m, _ map[string]any) { m["annotations"].(map[string]any)[marks.NamespacePolicyName] = "p" }, true, false},
		"revision":   {func(m, _ map[string]any) { m["annotations"].(map[string]any)[revisionAnnotation] = "2" }, true, false},
		"label":      {func(m, _ map[string]any) { m["labels"].(map[string]any)["app"] = "db" }, true, true},
		"hold":       {func(m, _ map[string]any) { m["annotations"].(map[string]any)[marks.Hold] = "true" }, true, true},
		"data":       {func(_, d map[string]any) { d["k"] = "w" }, true, true},
	} {
		changed := object(c.change)
		content2, asked2, err := contentHash(changed)
		if err != nil || content2 != former(changed) {
			t.Errorf("%s: %x (%v), in bindings stands %x", name, content2, err, former(changed))
		}
		if (content2 != content) != c.newContent || (asked2 != asked) != c.isAsked {
			t.Errorf("%s: new content %t, asked %t", name, content2 != content, asked2 != asked)
		}
	}
}
