package admission

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
)

// Only who may limit namespaces sets, changes or lifts a limit, by whatever
// request; one that cannot be read is refused to everybody.
func TestLimitsOfNamespaces(t *testing.T) {
	namespace := func(limit string) *core.Namespace {
		ns := &core.Namespace{}
		ns.Name = "shop"
		ns.Annotations = map[string]string{"other": limit}
		if limit != "" {
			ns.Annotations[placement.ClustersAnnotation] = limit
		}
		return ns
	}
	for name, c := range map[string]struct {
		old, next   *core.Namespace
		subresource string
		may         bool
		allowed     bool
		invalid     bool
	}{
		"made without":        {nil, namespace(""), "", false, true, false},
		"made with":           {nil, namespace("m1"), "", false, false, false},
		"made with, may":      {nil, namespace("m1,m2"), "", true, true, false},
		"set":                 {namespace(""), namespace("m1"), "", false, false, false},
		"set by status":       {namespace(""), namespace("m1"), "status", false, false, false},
		"changed":             {namespace("m1"), namespace("m1,m2"), "", false, false, false},
		"lifted":              {namespace("m1"), namespace(""), "", false, false, false},
		"lifted, may":         {namespace("m1"), namespace(""), "", true, true, false},
		"something else":      {namespace("m1"), namespace("m1"), "", false, true, false},
		"no names, who may":   {namespace("m1"), namespace(" "), "", true, false, true},
		"nonsense by anybody": {namespace("m1"), namespace("M_1"), "", false, false, true},
	} {
		right := "get namespaces. shop"
		if c.may {
			right = LimitVerb + " namespaces. shop"
		}
		p := &namespaceLimits{rights: rights{rightsOn(right)}}
		op, old := admission.Update, runtime.Object(c.old)
		if c.old == nil {
			op, old = admission.Create, nil
		}
		a := admission.NewAttributesRecord(c.next, old, core.Kind("Namespace").WithVersion("v1"), "shop", "shop",
			core.Resource("namespaces").WithVersion("v1"), c.subresource, op, nil, false, &user.DefaultInfo{Name: "jane"})
		err := p.Validate(t.Context(), a, nil)
		if (err == nil) != c.allowed || apierrors.IsInvalid(err) != c.invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
