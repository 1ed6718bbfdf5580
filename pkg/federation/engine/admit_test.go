package engine

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestRefusalIn(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		answer       error
		refused, err bool
	}{
		"taken":            {nil, false, false},
		"is there":         {apierrors.NewAlreadyExists(pods, "p"), false, false},
		"quota":            {apierrors.NewForbidden(pods, "p", errors.New("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")), false, false},
		"pod security":     {apierrors.NewForbidden(pods, "p", errors.New(`violates PodSecurity "restricted:latest"`)), true, false},
		"a policy":         {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil), true, false},
		"dry run":          {apierrors.NewBadRequest("admission webhook does not support dry run"), true, false},
		"busy":             {apierrors.NewTooManyRequests("later", 1), false, true},
		"broken":           {apierrors.NewInternalError(errors.New("webhook is down")), false, true},
		"no namespace yet": {apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "n"), false, true},
		"no answer":        {errors.New("connection refused"), false, true},
	} {
		why, err := refusalIn(c.answer)
		if (why != nil) != c.refused || (err != nil) != c.err {
			t.Errorf("%s: refused %v, error %v", name, why, err)
		}
	}
}

func TestPodOfTemplate(t *testing.T) {
	template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{"containers": []any{}}}
	object := func(spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetName("web")
		u.SetNamespace("shop")
		return u
	}
	for gk, u := range map[schema.GroupKind]*unstructured.Unstructured{
		deploymentKind: object(map[string]any{"template": template}),
		cronJobKind:    object(map[string]any{"jobTemplate": map[string]any{"spec": map[string]any{"template": template}}}),
	} {
		pod := podOf(gk, u)
		if pod == nil || pod.GetKind() != "Pod" || pod.GetNamespace() != "shop" || pod.GetLabels()["a"] != "b" {
			t.Errorf("%s: %v", gk, pod)
		}
	}
	if pod := podOf(schema.GroupKind{Group: "example.com", Kind: "Foo"}, object(map[string]any{"template": template})); pod != nil {
		t.Errorf("a custom resource makes %v", pod)
	}
	if template["kind"] != nil {
		t.Error("the template itself has become a Pod")
	}
}

func TestAdmittedIsRememberedForAWhile(t *testing.T) {
	var a admitted
	now := time.Now()
	a.add(1, now)
	if !a.has(1, now) || a.has(2, now) || a.has(1, now.Add(admittedLasts)) {
		t.Error("what was admitted is not remembered as it should be")
	}
}
