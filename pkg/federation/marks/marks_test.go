package marks

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func key(g, v, k, ns, n string) Key {
	return Key{GroupVersionKind: schema.GroupVersionKind{Group: g, Version: v, Kind: k}, Namespace: ns, Name: n}
}

// The gateway reads what the engine writes: one set of keys.
func TestKeysAgreeWithTheCache(t *testing.T) {
	for _, c := range []struct{ ours, theirs string }{
		{Managed, cache.ManagedLabel},
		{TemplateUID, cache.TemplateUIDAnnotation},
		{Template, cache.TemplateAnnotation},
		{Revision, cache.RevisionAnnotation},
	} {
		if c.ours != c.theirs {
			t.Errorf("key %q, cache has %q", c.ours, c.theirs)
		}
	}
}

func TestKeyRoundTrip(t *testing.T) {
	for s, k := range map[string]Key{
		"apps/v1/Deployment/default/web":       key("apps", "v1", "Deployment", "default", "web"),
		"core/v1/Namespace//team":              key("", "v1", "Namespace", "", "team"),
		"example.com/v1alpha1/Foo/ns/a.b:c-1d": key("example.com", "v1alpha1", "Foo", "ns", "a.b:c-1d"),
	} {
		if k.String() != s {
			t.Errorf("String() = %q, want %q", k.String(), s)
		}
		got, err := ParseKey(s)
		if err != nil || got != k {
			t.Errorf("ParseKey(%q) = %v, %v", s, got, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("apps/v1/Deployment/default/web")
	f.Add("////")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseKey(s)
		if err == nil && k.String() != s {
			t.Errorf("ParseKey(%q).String() = %q", s, k.String())
		}
	})
}

func TestOwned(t *testing.T) {
	web := key("apps", "v1", "Deployment", "default", "web")
	set := Set{ControlPlane: "cp", Template: web, TemplateUID: "u"}
	with := func(k, v string) map[string]string {
		a := set.Annotations()
		a[k] = v
		return a
	}
	for name, c := range map[string]struct {
		cp   string
		key  Key
		l, a map[string]string
		want bool
	}{
		"copy":                      {"cp", web, set.Labels(), set.Annotations(), true},
		"other version of the API":  {"cp", key("apps", "v1beta1", "Deployment", "default", "web"), set.Labels(), set.Annotations(), true},
		"no label":                  {"cp", web, nil, set.Annotations(), false},
		"label but not true":        {"cp", web, map[string]string{Managed: "yes"}, set.Annotations(), false},
		"clone with another name":   {"cp", key("apps", "v1", "Deployment", "default", "web2"), set.Labels(), set.Annotations(), false},
		"inherited by a ReplicaSet": {"cp", key("apps", "v1", "ReplicaSet", "default", "web"), set.Labels(), set.Annotations(), false},
		"another control plane":     {"cp", web, set.Labels(), with(ControlPlane, "other"), false},
		"no id on either side":      {"", web, set.Labels(), with(ControlPlane, ""), false},
		"broken mark":               {"cp", web, set.Labels(), with(Template, "web"), false},
	} {
		if got := Owned(c.cp, c.key, c.l, c.a); got != c.want {
			t.Errorf("%s: Owned = %v", name, got)
		}
	}
}
