package federatedquota

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/quota"
)

func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func limits(overall corev1.ResourceList, assigned ...policyv1alpha1.StaticClusterAssignment) *policyv1alpha1.FederatedResourceQuota {
	f := &policyv1alpha1.FederatedResourceQuota{Spec: policyv1alpha1.FederatedResourceQuotaSpec{Overall: overall, StaticAssignments: assigned}}
	f.Namespace, f.Name, f.UID = "shop", "limit", "u"
	return f
}

func in(cluster string, hard corev1.ResourceList) policyv1alpha1.StaticClusterAssignment {
	return policyv1alpha1.StaticClusterAssignment{ClusterName: cluster, Hard: hard}
}

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		quota *policyv1alpha1.FederatedResourceQuota
		want  string // part of what is said; empty for nothing
	}{
		"overall alone":           {limits(list("cpu", "10")), ""},
		"all of it assigned":      {limits(list("cpu", "10"), in("a", list("cpu", "4")), in("b", list("cpu", "6"))), ""},
		"templates are not added": {limits(list("configmaps", "10"), in("a", list("configmaps", "10")), in("b", list("configmaps", "10"))), ""},
		"nothing":                 {limits(nil), "spec.overall: at least one"},
		"more than overall":       {limits(list("cpu", "10"), in("a", list("cpu", "4")), in("b", list("cpu", "7"))), "11 of cpu are assigned, and spec.overall allows 10"},
		"not in overall":          {limits(list("cpu", "10"), in("a", list("memory", "1Gi"))), "spec.staticAssignments[0].hard[memory]: is not among spec.overall"},
		"below zero":              {limits(list("cpu", "-1")), "spec.overall[cpu]"},
		"no resource":             {limits(list("colour", "1")), "spec.overall[colour]"},
		"parts of a Pod":          {limits(list("pods", "1500m")), "spec.overall[pods]"},
	} {
		err := errors.Join(Validate(&c.quota.Spec)...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The ResourceQuota is made once, keeps what others put on it, and loses what is
// no longer assigned.
func TestDesired(t *testing.T) {
	f := limits(list("cpu", "10"), in("a", list("cpu", "4")))
	first, err := Desired(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !metav1.IsControlledBy(first, f) || first.Annotations[quota.Assignments] != `{"a":{"cpu":"4"}}` || first.Name != "limit" {
		t.Errorf("made: %+v", first.ObjectMeta)
	}
	first.Labels = map[string]string{"team": "shop"}
	again, err := Desired(f, first)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("it is made anew: %s", diff)
	}
	f.Spec.StaticAssignments = nil
	last, err := Desired(f, first)
	if err != nil {
		t.Fatal(err)
	}
	if last.Annotations[quota.Assignments] != "" || last.Labels["team"] != "shop" {
		t.Errorf("left: %+v", last.ObjectMeta)
	}
}

func TestStatus(t *testing.T) {
	f := limits(list("cpu", "10"), in("b", list("cpu", "4")), in("a", list("cpu", "6")), in("c", list("cpu", "0")))
	f.Status.AggregatedStatus = []policyv1alpha1.ClusterQuotaStatus{{ClusterName: "a", ResourceQuotaStatus: corev1.ResourceQuotaStatus{Hard: list("cpu", "6"), Used: list("cpu", "5")}}}
	whole := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Used: list("cpu", "7", "pods", "3")}}
	got := Status(f, whole, map[string]corev1.ResourceQuotaStatus{
		"b": {Hard: list("cpu", "4", "pods", "1"), Used: list("cpu", "2")}, "other": {Hard: list("cpu", "0")},
	})
	want := policyv1alpha1.FederatedResourceQuotaStatus{Overall: list("cpu", "10"), OverallUsed: list("cpu", "7"), AggregatedStatus: []policyv1alpha1.ClusterQuotaStatus{
		{ClusterName: "a", ResourceQuotaStatus: corev1.ResourceQuotaStatus{Hard: list("cpu", "6"), Used: list("cpu", "5")}},
		{ClusterName: "b", ResourceQuotaStatus: corev1.ResourceQuotaStatus{Hard: list("cpu", "4"), Used: list("cpu", "2")}},
	}}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
