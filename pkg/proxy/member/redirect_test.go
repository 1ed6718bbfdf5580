package member

import (
	"errors"
	"net/url"
	"testing"
)

func TestMapRedirect(t *testing.T) {
	const root, served = "/api/v1/namespaces/d/pods/x/proxy", "/api/v1/namespaces/d/pods/x.m2/proxy"
	for name, tc := range map[string]struct {
		location, base, root, served, want string
	}{
		"below the root":       {location: root + "/login?a=b#c", root: root, served: served, want: served + "/login?a=b#c"},
		"the root itself":      {location: root, root: root, served: served, want: served},
		"base path taken off":  {location: "/k8s/c1" + root + "/login", base: "/k8s/c1/", root: root, served: served, want: served + "/login"},
		"whole member":         {location: "/healthz/", served: "/p/proxy", want: "/p/proxy/healthz/"},
		"neighbour":            {location: root + "x/login", root: root, served: served},
		"another object":       {location: "/api/v1/secrets", root: root, served: served},
		"another host":         {location: "https://evil.example" + root, root: root, served: served},
		"scheme-relative":      {location: "//evil.example" + root, root: root, served: served},
		"backslashes":          {location: `/\evil.example`, served: "/p/proxy"},
		"dots":                 {location: root + "/../../secrets", root: root, served: served},
		"escaped dots":         {location: root + "/%2e%2e/%2E%2E/secrets", root: root, served: served},
		"escaped slashes":      {location: root + "/..%2fsecrets", root: root, served: served},
		"relative":             {location: "login", root: root, served: served},
		"no redirects allowed": {location: root + "/login", root: root},
		"script":               {location: "javascript:alert(1)", served: "/p/proxy"},
		"empty":                {location: "", root: root, served: served},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := mapRedirect(tc.location, tc.base, tc.root, tc.served)
			if ok != (tc.want != "") || got != tc.want {
				t.Errorf("got %q, %t; want %q", got, ok, tc.want)
			}
		})
	}
}

func TestURL(t *testing.T) {
	base, err := url.Parse("https://m1:6443/k8s/c1/")
	if err != nil {
		t.Fatal(err)
	}
	tr := &Transport{name: "m1", base: base}
	for path, want := range map[string]string{
		"/api/v1/pods":                       "https://m1:6443/k8s/c1/api/v1/pods?a=b",
		"/x/proxy/a%2Fb/c%20d/":              "https://m1:6443/k8s/c1/x/proxy/a%2Fb/c%20d/?a=b",
		"":                                   "https://m1:6443/k8s/c1/?a=b",
		"/x/proxy/..":                        "",
		"/x/proxy/../../secrets":             "",
		"/x/proxy/%2e%2e/secrets":            "",
		"/x/proxy/a%2F..%2fsecrets":          "",
		`/x/proxy/..\secrets`:                "",
		"/x/./y":                             "",
		"/x/%zz":                             "",
		"/x/.well-known/..a/a..b/openapi.v2": "https://m1:6443/k8s/c1/x/.well-known/..a/a..b/openapi.v2?a=b",
	} {
		u, err := tr.URL(path, "a=b")
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: reaches %s", path, u)
		case want != "" && err != nil:
			t.Errorf("%s: %v", path, err)
		case want != "" && u.String() != want:
			t.Errorf("%s: %s, want %s", path, u, want)
		}
	}
	if _, err := tr.URL("/../x", ""); !errors.Is(err, ErrPath) {
		t.Errorf("got %v", err)
	}
}
