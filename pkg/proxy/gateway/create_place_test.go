package gateway

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/proxy/member"
)

func (c *fakeCollection) Holder(cache.Key) (cache.ClusterName, bool) { return "", false }

func (c *fakeCollection) Stats() cache.Stats {
	s := cache.Stats{Objects: map[cache.ClusterName]int{}}
	for _, o := range c.stateAt(c.rv).objects {
		s.Objects[o.Cluster]++
	}
	return s
}

func TestAgree(t *testing.T) {
	gk := schema.GroupKind{Kind: "Pod"}
	path := field.NewPath("spec", "nodeName")
	if _, settled, err := agree(gk, "x", nil); settled || err != nil {
		t.Errorf("no wishes: %t %v", settled, err)
	}
	if c, settled, err := agree(gk, "x", []wish{{"m1", path, "n"}, {"m1", path, "o"}}); c != "m1" || !settled || err != nil {
		t.Errorf("agreed: %s %t %v", c, settled, err)
	}
	if _, _, err := agree(gk, "x", []wish{{"m1", path, "n"}, {"m2", path, "o"}}); !apierrors.IsInvalid(err) {
		t.Errorf("disagreed: %v", err)
	}
}

func TestElsewhere(t *testing.T) {
	members := staticMembers{{Name: "m1", Ready: true, Config: &rest.Config{Host: "https://127.0.0.1:1"}}, {Name: "m2", Ready: true, Config: &rest.Config{Host: "https://127.0.0.1:2"}}}
	e := newEndpoint(t, func(o *Options) { o.Members = members })
	info := infoOf(t, "/api/v1/namespaces/d/pods")
	at := func(free bool) *newcomer { return &newcomer{route: route{member: members[0]}, free: free} }
	unseen := &member.UnreachableError{Cluster: "m1", Err: errors.New("no")}
	seen := &member.UnreachableError{Cluster: "m1", Sent: true, Err: errors.New("no")}
	if n := at(true); !e.handler.elsewhere(t.Context(), info, n, unseen) || n.member.Name != "m2" {
		t.Errorf("surely not seen: stays in %q", n.member.Name)
	} else if e.handler.elsewhere(t.Context(), info, n, unseen) {
		t.Errorf("no member is left: goes on to %q", n.member.Name)
	}
	if e.handler.elsewhere(t.Context(), info, at(false), unseen) {
		t.Error("bound to its cluster: moved")
	}
	for _, err := range []error{nil, seen, errors.New("another")} {
		if e.handler.elsewhere(t.Context(), info, at(true), err) {
			t.Errorf("%v: sent twice", err)
		}
	}
}

func TestPlace(t *testing.T) {
	members := staticMembers{
		{Name: cache.ControlPlane, Ready: true}, {Name: "m1", Ready: true}, {Name: "m2", Ready: true}, {Name: "m3"},
	}
	e := newEndpoint(t, func(o *Options) { o.Members = members })
	e.putPods(t, "m1", "d", 2)
	e.putPods(t, "m2", "d", 1)
	node := e.nodes.put(t, "m1", pod("", "n1"), nil)
	node.SourceName = "n1"
	renamed := e.nodes.put(t, "m2", pod("", "n1.m2"), nil)
	renamed.SourceName = "n1"
	e.pods.put(t, cache.ControlPlane, pod("d", "template"), nil)
	for name, tc := range map[string]struct {
		doc   string
		want  cache.ClusterName
		node  string
		wrong bool
	}{
		"the fewest Pods":       {doc: `{}`, want: "m2"},
		"label":                 {doc: `{"metadata":{"labels":{"isthmus.dev/cluster":"m1"}}}`, want: "m1"},
		"label of one unready":  {doc: `{"metadata":{"labels":{"isthmus.dev/cluster":"m3"}}}`, want: "m3"},
		"unknown label":         {doc: `{"metadata":{"labels":{"isthmus.dev/cluster":"m9"}}}`, wrong: true},
		"empty label":           {doc: `{"metadata":{"labels":{"isthmus.dev/cluster":""}}}`, wrong: true},
		"label no string":       {doc: `{"metadata":{"labels":{"isthmus.dev/cluster":{}}}}`, wrong: true},
		"node":                  {doc: `{"spec":{"nodeName":"n1"}}`, want: "m1", node: "n1"},
		"renamed node":          {doc: `{"spec":{"nodeName":"n1.m2"}}`, want: "m2", node: "n1"},
		"unknown node":          {doc: `{"spec":{"nodeName":"n7"}}`, want: "m2", node: "n7"},
		"label against node":    {doc: `{"metadata":{"labels":{"isthmus.dev/cluster":"m1"}},"spec":{"nodeName":"n1.m2"}}`, wrong: true},
		"owner":                 {doc: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"m1-000"}]}}`, want: "m1"},
		"owner that died":       {doc: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"m1-000","uid":"before"}]}}`, want: "m2"},
		"owner, control plane":  {doc: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"template"}]}}`, wrong: true},
		"owner, kind not known": {doc: `{"metadata":{"ownerReferences":[{"apiVersion":"a/b/c","kind":"","name":"x"},7]}}`, want: "m2"},
	} {
		doc := parse(t, tc.doc)
		got, _, err := e.handler.place(t.Context(), infoOf(t, "/api/v1/namespaces/d/pods"), e.pods, doc, nil)
		if tc.wrong != apierrors.IsInvalid(err) || got != tc.want || !tc.wrong && text(child(doc, "spec"), "nodeName") != tc.node {
			t.Errorf("%s: %q, %v; the document is %v", name, got, err, doc)
		}
	}
	if _, _, err := e.handler.place(t.Context(), infoOf(t, "/api/v1/nodes"), e.nodes, document{}, nil); !apierrors.IsInvalid(err) {
		t.Errorf("node: %v", err)
	}
	e.pods.setGaps(cache.Gap{Cluster: "m2", Kind: cache.Stale})
	if got, err := e.handler.leastLoaded(nil); got != "m1" || err != nil {
		t.Errorf("the least loaded is silent: %q, %v", got, err)
	}
	if got, err := e.handler.leastLoaded([]cache.ClusterName{"m1"}); got != "m2" || err != nil {
		t.Errorf("the other was tried: %q, %v", got, err)
	}
	members[1].Ready, members[2].Ready = false, false
	if _, err := e.handler.leastLoaded(nil); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("nobody is ready: %v", err)
	}
}
