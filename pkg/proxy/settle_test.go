package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

func TestDecideSettling(t *testing.T) {
	info := func(verb, group, resource, subresource string) *request.RequestInfo {
		return &request.RequestInfo{IsResourceRequest: true, Verb: verb, APIGroup: group, Resource: resource, Subresource: subresource}
	}
	for name, c := range map[string]struct {
		info     *request.RequestInfo
		query    string
		loopback bool
		want     Settling
	}{
		"deletion":                     {info: info("delete", "", "configmaps", ""), want: UntilGone},
		"deletion of many":             {info: info("deletecollection", "apps", "replicasets", ""), want: UntilGone},
		"deletion of a custom object":  {info: info("delete", "example.com", "foos", ""), want: UntilGone},
		"dry run":                      {info: info("delete", "", "configmaps", ""), query: "?dryRun=All"},
		"a controller's own deletion":  {info: info("delete", "", "configmaps", ""), loopback: true},
		"deletion of a namespace":      {info: info("delete", "", "namespaces", "")},
		"a LimitRange":                 {info: info("create", "", "limitranges", ""), want: UntilInPlace},
		"a PriorityClass":              {info: info("create", "scheduling.k8s.io", "priorityclasses", ""), want: UntilInPlace},
		"a Deployment":                 {info: info("create", "apps", "deployments", "")},
		"a token of a service account": {info: info("create", "", "serviceaccounts", "token")},
		"an update":                    {info: info("update", "", "limitranges", "")},
		"no resource":                  {},
	} {
		r := httptest.NewRequest(http.MethodPost, "/"+c.query, nil)
		if got := DecideSettling(c.info, r, c.loopback); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

type recordingSettler struct {
	gone    []Ref
	all     string
	inPlace []Ref
	kind    schema.GroupKind
}

func (s *recordingSettler) Gone(_ context.Context, _ schema.GroupVersionResource, ref Ref) {
	s.gone = append(s.gone, ref)
}

func (s *recordingSettler) AllGone(_ context.Context, gvr schema.GroupVersionResource, namespace, labelSelector, fieldSelector string) {
	s.all = gvr.Resource + "/" + namespace + "/" + labelSelector + "/" + fieldSelector
}

func (s *recordingSettler) InPlace(_ context.Context, gk schema.GroupKind, ref Ref) {
	s.kind, s.inPlace = gk, append(s.inPlace, ref)
}

type answering struct{ http.Handler }

func (answering) ServeClusterProxy(http.ResponseWriter, *http.Request, string, string) {}

func TestServeSettled(t *testing.T) {
	const (
		held  = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"held","uid":"1","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["isthmus.dev/propagation"]}}`
		other = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"other","uid":"2","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["foregroundDeletion","isthmus.dev/propagation"]}}`
		list  = `{"apiVersion":"v1","kind":"ConfigMapList","items":[` + held + `,` + other + `]}`
		limit = `{"apiVersion":"v1","kind":"LimitRange","metadata":{"namespace":"a","name":"limit","uid":"3"}}`
		done  = `{"apiVersion":"v1","kind":"Status","status":"Success"}`
	)
	ref := func(name, uid string) []Ref { return []Ref{{Namespace: "a", Name: name, UID: types.UID(uid)}} }
	for name, c := range map[string]struct {
		verb, resource, answer string
		code                   int
		gone, inPlace          []Ref
		all                    string
	}{
		"held by the members":    {verb: "delete", resource: "configmaps", answer: held, code: 200, gone: ref("held", "1")},
		"held by others as well": {verb: "delete", resource: "configmaps", answer: other, code: 200},
		"a collection":           {verb: "deletecollection", resource: "configmaps", answer: list, code: 200, all: "configmaps/a/l=1/f=2"},
		"a collection of a dual kind": {
			verb: "deletecollection", resource: "persistentvolumeclaims", answer: done, code: 200, all: "persistentvolumeclaims/a/l=1/f=2",
		},
		"gone at once":       {verb: "delete", resource: "configmaps", answer: done, code: 200},
		"refused":            {verb: "delete", resource: "configmaps", answer: held, code: 409},
		"what judges others": {verb: "create", resource: "limitranges", answer: limit, code: 201, inPlace: ref("limit", "3")},
	} {
		t.Run(name, func(t *testing.T) {
			settler := &recordingSettler{}
			next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept-Encoding") != "" {
					t.Error("the answer may come compressed")
				}
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.answer)
			})
			router := &Router{Kinds: NewKinds(DefaultClasses()), Settler: settler, Gateway: answering{next}}
			info := &request.RequestInfo{IsResourceRequest: true, Verb: c.verb, APIVersion: "v1", Resource: c.resource, Namespace: "a"}
			r := httptest.NewRequest(http.MethodDelete, "/?labelSelector=l%3D1&fieldSelector=f%3D2", nil)
			r.Header.Set("Accept-Encoding", "gzip")
			w := httptest.NewRecorder()
			router.Wrap(next).ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
			if w.Code != c.code || w.Body.String() != c.answer {
				t.Errorf("answered %d %s", w.Code, w.Body)
			}
			if !reflect.DeepEqual(settler.gone, c.gone) || !reflect.DeepEqual(settler.inPlace, c.inPlace) || settler.all != c.all {
				t.Errorf("waited for gone %v, in place %v, all of %q; want %v, %v, %q", settler.gone, settler.inPlace, settler.all, c.gone, c.inPlace, c.all)
			}
			if c.inPlace != nil && settler.kind.Kind != "LimitRange" {
				t.Errorf("kind %s", settler.kind)
			}
		})
	}
}
