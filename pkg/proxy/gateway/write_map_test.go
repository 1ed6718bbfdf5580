package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// renamedPod is m2's Pod web, served as web.m2 on a renamed node under the
// control plane's owner.
func renamedPod() *identity {
	return &identity{
		res: podResource, cluster: "m2", namespace: "d", servedName: "web.m2", sourceName: "web", uid: "pod-uid",
		servedRV: "1000", sourceRV: "7",
		owners: []ownerPair{{
			served: cache.OwnerRef{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "cp-uid"},
			source: cache.OwnerRef{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs-abc", UID: "m2-uid"},
		}},
		node: renamed{served: "n1.m2", source: "n1"},
	}
}

func parse(t *testing.T, js string) document {
	t.Helper()
	doc, complaints, err := parseJSON([]byte(js))
	if err != nil || len(complaints) > 0 {
		t.Fatalf("%s: %v %v", js, err, complaints)
	}
	return doc
}

func TestToSource(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"whole object": {
			`{"metadata":{"name":"web.m2","namespace":"d","uid":"pod-uid","resourceVersion":"1000",
			  "labels":{"isthmus.dev/cluster":"m2","a":"b"},"annotations":{"isthmus.dev/original-name":"web","c":"d"},
			  "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"cp-uid","controller":true},{"kind":"X","name":"x","uid":"other"}]},
			  "spec":{"nodeName":"n1.m2"}}`,
			`{"metadata":{"name":"web","namespace":"d","uid":"pod-uid","resourceVersion":"7",
			  "labels":{"a":"b"},"annotations":{"c":"d"},
			  "ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs-abc","uid":"m2-uid","controller":true},{"kind":"X","name":"x","uid":"other"}]},
			  "spec":{"nodeName":"n1"}}`,
		},
		"empty patch":                   {`{}`, `{"metadata":{"uid":"pod-uid"}}`},
		"no condition":                  {`{"metadata":{"resourceVersion":""}}`, `{"metadata":{"resourceVersion":"","uid":"pod-uid"}}`},
		"any version":                   {`{"metadata":{"resourceVersion":"0"}}`, `{"metadata":{"resourceVersion":"0","uid":"pod-uid"}}`},
		"cluster label taken off":       {`{"metadata":{"labels":{"isthmus.dev/cluster":null}}}`, `{"metadata":{"labels":{},"uid":"pod-uid"}}`},
		"all labels taken off":          {`{"metadata":{"labels":null}}`, `{"metadata":{"labels":null,"uid":"pod-uid"}}`},
		"owner taken off (strategic)":   {`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"cp-uid"}]}}`, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"m2-uid"}],"uid":"pod-uid"}}`},
		"order of owners":               {`{"metadata":{"$setElementOrder/ownerReferences":[{"uid":"cp-uid"}]}}`, `{"metadata":{"$setElementOrder/ownerReferences":[{"uid":"m2-uid"}],"uid":"pod-uid"}}`},
		"another name is the member's":  {`{"metadata":{"name":"else"}}`, `{"metadata":{"name":"else","uid":"pod-uid"}}`},
		"another node is the member's":  {`{"spec":{"nodeName":"n9"}}`, `{"metadata":{"uid":"pod-uid"},"spec":{"nodeName":"n9"}}`},
		"odd types are the member's":    {`{"metadata":{"labels":[1],"ownerReferences":{"a":1}},"spec":"x"}`, `{"metadata":{"labels":[1],"ownerReferences":{"a":1},"uid":"pod-uid"},"spec":"x"}`},
		"null metadata changes nothing": {`{"metadata":null}`, `{"metadata":{"uid":"pod-uid"}}`},
		"numbers keep their value":      {`{"spec":{"a":9007199254740993,"b":1.5}}`, `{"metadata":{"uid":"pod-uid"},"spec":{"a":9007199254740993,"b":1.5}}`},
		"fields nobody knows pass":      {`{"x-new":{"y":[{}]}}`, `{"metadata":{"uid":"pod-uid"},"x-new":{"y":[{}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			doc := parse(t, tc.in)
			if err := renamedPod().toSource(doc); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, tc.want), doc); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestToSourceRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		in string
		is func(error) bool
	}{
		"another cluster":  {`{"metadata":{"labels":{"isthmus.dev/cluster":"m1"}}}`, apierrors.IsInvalid},
		"empty cluster":    {`{"metadata":{"labels":{"isthmus.dev/cluster":""}}}`, apierrors.IsInvalid},
		"old version":      {`{"metadata":{"resourceVersion":"999"}}`, apierrors.IsConflict},
		"source's version": {`{"metadata":{"resourceVersion":"7"}}`, apierrors.IsConflict},
		"no number":        {`{"metadata":{"resourceVersion":"abc"}}`, apierrors.IsInvalid},
		"no string":        {`{"metadata":{"resourceVersion":7}}`, apierrors.IsBadRequest},
		"another object":   {`{"metadata":{"uid":"before"}}`, apierrors.IsConflict},
		"metadata a list":  {`{"metadata":[]}`, apierrors.IsBadRequest},
	} {
		if err := renamedPod().toSource(parse(t, tc.in)); !tc.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEventReferences(t *testing.T) {
	id := &identity{res: eventResource, cluster: "m2", servedName: "e", sourceName: "e", uid: "u", servedRV: "10", sourceRV: "1"}
	id.learnReferences(
		document{"involvedObject": document{"name": "web.m2", "uid": "as-served"}},
		&cache.Origin{Others: &cache.OtherRefs{Involved: cache.InvolvedRef{Name: "web", UID: "in-source"}}},
	)
	for _, key := range []string{"involvedObject", "regarding"} {
		doc := document{key: document{"kind": "Pod", "name": "web.m2", "uid": "as-served"}}
		if err := id.toSource(doc); err != nil {
			t.Fatal(err)
		}
		want := document{"kind": "Pod", "name": "web", "uid": "in-source"}
		if diff := cmp.Diff(want, doc[key]); diff != "" {
			t.Errorf("%s: %s", key, diff)
		}
		id.toServed(doc)
		if got := doc[key].(document); got["name"] != "web.m2" || got["uid"] != "as-served" {
			t.Errorf("%s comes back as %v", key, got)
		}
	}
}

// What is served and written back unchanged must be what the source has, and
// the other way round.
func TestMappingRoundTrip(t *testing.T) {
	const source = `{"metadata":{"name":"web","namespace":"d","uid":"pod-uid","resourceVersion":"7","labels":{"a":"b"},"annotations":{"c":"d"},
		"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs-abc","uid":"m2-uid"}]},"spec":{"nodeName":"n1"}}`
	id := renamedPod()
	doc := parse(t, source)
	id.toServed(doc)
	meta := child(doc, "metadata")
	if text(meta, "name") != "web.m2" || text(child(meta, "labels"), cache.ClusterLabel) != "m2" ||
		text(child(meta, "annotations"), cache.OriginalNameAnnotation) != "web" || text(child(doc, "spec"), "nodeName") != "n1.m2" {
		t.Errorf("served as %v", doc)
	}
	if err := id.toSource(doc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parse(t, source), doc); diff != "" {
		t.Error(diff)
	}
}

// Whatever a client sends, what reaches the member carries the UID, no mark,
// and never the RV space of this endpoint.
func FuzzToSource(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"web.m2","resourceVersion":"1000","labels":{"isthmus.dev/cluster":"m2"}}}`))
	f.Add([]byte(`{"metadata":{"ownerReferences":[null,1,{"uid":"cp-uid","name":5}],"annotations":{"isthmus.dev/original-name":1}},"spec":[]}`))
	f.Add([]byte("metadata: &a\n  labels: {isthmus.dev/cluster: m2}\nspec: {nodeName: n1.m2}\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range []func([]byte) (document, []error, error){parseJSON, parseYAML} {
			doc, _, err := parse(body)
			if err != nil || renamedPod().toSource(doc) != nil {
				continue
			}
			meta := child(doc, "metadata")
			if text(meta, "uid") != "pod-uid" {
				t.Error("no UID")
			}
			if _, ok := child(meta, "labels")[cache.ClusterLabel]; ok {
				t.Error("cluster label written")
			}
			if _, ok := child(meta, "annotations")[cache.OriginalNameAnnotation]; ok {
				t.Error("original name written")
			}
			if rv, ok := meta["resourceVersion"].(string); ok && rv != "" && rv != "0" && rv != "7" {
				t.Errorf("resourceVersion %q written", rv)
			}
			if _, err := json.Marshal(doc); err != nil {
				t.Error(err)
			}
		}
	})
}

func infoOf(t *testing.T, path string) *request.RequestInfo {
	t.Helper()
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	r := httptest.NewRequest(http.MethodGet, path, nil)
	info, err := factory.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestAfterName(t *testing.T) {
	for path, want := range map[string]string{
		"/api/v1/namespaces/d/pods/web.m2/proxy/a%2Fb/c/": "proxy/a%2Fb/c/",
		"/api/v1/namespaces/d/pods/web.m2/log":            "log",
		"/api/v1/nodes/n1.m2/proxy/metrics":               "proxy/metrics",
		"/apis/g/v1/namespaces/d/widgets/w/scale":         "scale",
		"/api/v1/namespaces/d/pods/web.m2":                "",
	} {
		info := infoOf(t, path)
		got, _ := afterName(path, info)
		if got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
