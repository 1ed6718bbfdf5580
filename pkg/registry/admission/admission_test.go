package admission

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/fake"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
)

// refuser is a policy: no Pod may have the label "forbidden", before or after.
type refuser struct{ asked int }

func (p *refuser) Handles(admission.Operation) bool { return true }

func (p *refuser) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	p.asked++
	for _, o := range []any{a.GetObject(), a.GetOldObject()} {
		if pod, ok := o.(*corev1.Pod); ok && pod.Labels["forbidden"] != "" {
			return errors.New("refused by policy")
		}
	}
	return nil
}

const plainPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"d"}}`

func forbiddenPod() string {
	return strings.Replace(plainPod, `"name":"p"`, `"name":"p","labels":{"forbidden":"x"}`, 1)
}

func TestRoutedAdmit(t *testing.T) {
	pod := request.RequestInfo{IsResourceRequest: true, APIVersion: "v1", Resource: "pods", Namespace: "d", Name: "p", Path: "/api/v1/namespaces/d/pods/p"}
	with := func(verb, subresource, namespace, name string) request.RequestInfo {
		i := pod
		i.Verb, i.Subresource, i.Namespace, i.Name = verb, subresource, namespace, name
		return i
	}
	list := `{"apiVersion":"v1","kind":"PodList","items":[` + plainPod + `,` + forbiddenPod() + `]}`
	const merge = "application/merge-patch+json"
	tests := []struct {
		name              string
		info              request.RequestInfo
		body, contentType string
		present           string
		presentCode       int
		noPolicies        bool
		want              int // 0: admitted
	}{
		{name: "good creation", info: with("create", "", "d", ""), body: plainPod},
		{name: "bad creation", info: with("create", "", "d", ""), body: forbiddenPod(), want: 500},
		{name: "bad creation without policies", info: with("create", "", "d", ""), body: forbiddenPod(), noPolicies: true},
		{name: "unreadable creation", info: with("create", "", "d", ""), body: "\x00\x01", want: 400},
		{name: "no such namespace", info: with("create", "", "nowhere", ""), body: plainPod, noPolicies: true, want: 404},
		{name: "namespace is going", info: with("create", "", "going", ""), body: plainPod, noPolicies: true, want: 403},
		{name: "namespace is new", info: with("create", "", "new", ""), body: plainPod, noPolicies: true},
		{name: "namespace is there anew", info: with("create", "", "anew", ""), body: plainPod, noPolicies: true},
		{name: "good update", info: with("update", "", "d", "p"), body: plainPod, present: plainPod},
		{name: "bad update", info: with("update", "", "d", "p"), body: forbiddenPod(), present: plainPod, want: 500},
		{name: "bad patch", info: with("patch", "", "d", "p"), body: `{"metadata":{"labels":{"forbidden":"x"}}}`, contentType: merge, present: plainPod, want: 500},
		{name: "good patch", info: with("patch", "", "d", "p"), body: `{"metadata":{"labels":{"good":"x"}}}`, contentType: merge, present: plainPod},
		{name: "patch that cannot be judged", info: with("patch", "", "d", "p"), body: `{`, contentType: merge, present: plainPod, want: 400},
		{name: "update of what is not there", info: with("update", "", "d", "p"), body: plainPod, presentCode: 404},
		{name: "update while the cache is not loaded", info: with("update", "", "d", "p"), body: plainPod, presentCode: 503, want: 503},
		{name: "bad deletion", info: with("delete", "", "d", "p"), present: forbiddenPod(), want: 500},
		{name: "bad deletion in a collection", info: with("deletecollection", "", "d", ""), present: list, want: 500},
		{name: "stream", info: with("get", "exec", "d", "p")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			policy := &refuser{}
			routed := routedFor(t, policy, tt.noPolicies, tt.present, tt.presentCode)
			r := httptest.NewRequest(http.MethodPost, tt.info.Path, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.contentType)
			w := httptest.NewRecorder()
			admitted, ok := routed.Admit(w, r, &tt.info)
			if ok != (tt.want == 0) || !ok && w.Code != tt.want {
				t.Fatalf("admitted %v with %d %s, want %d", ok, w.Code, w.Body, tt.want)
			}
			if tt.noPolicies && policy.asked > 0 {
				t.Error("a policy was asked although none is in force")
			}
			if !ok {
				return
			}
			if body, err := io.ReadAll(admitted.Body); err != nil || string(body) != tt.body {
				t.Errorf("the handler reads %q (%v), want %q", body, err, tt.body)
			}
		})
	}
}

func routedFor(t *testing.T, policy *refuser, noPolicies bool, present string, code int) *Routed {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	bindings := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	add := func(store cache.Indexer, o any) {
		if err := store.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	add(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
	add(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
	going := corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}
	add(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "anew"}, Status: going})
	live := fake.NewClientset(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "anew"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "going"}, Status: going},
	)
	if !noPolicies {
		add(bindings, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	}
	reader := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch code {
		case 0:
			_, _ = io.WriteString(w, present)
		default:
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Status","status":"Failure","code":503,"reason":"ServiceUnavailable"}`)
		}
	})
	return &Routed{
		chain: policy, reader: reader,
		namespaces: corelisters.NewNamespaceLister(namespaces),
		live:       live.CoreV1(),
		bindings:   admissionlisters.NewValidatingAdmissionPolicyBindingLister(bindings),
	}
}
