// Package federatedquota keeps FederatedResourceQuotas:
//
//	FederatedResourceQuota -> Desired -> ResourceQuota of the same name, which the
//	                                     engine divides over the clusters
//	its usage, and the members' -> Status -> the FederatedResourceQuota
package federatedquota

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"

	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/quota"
)

// Kind of what is kept here.
const Kind = "FederatedResourceQuota"

// Validate says what is wrong with the limits.
func Validate(spec *policyv1alpha1.FederatedResourceQuotaSpec) []error {
	var problems []error
	path := field.NewPath("spec", "overall")
	if len(spec.Overall) == 0 {
		problems = append(problems, fmt.Errorf("%s: at least one resource is needed", path))
	}
	problems = append(problems, validateList(spec.Overall, path)...)
	sums := corev1.ResourceList{}
	for i, a := range spec.StaticAssignments {
		at := field.NewPath("spec", "staticAssignments").Index(i).Child("hard")
		problems = append(problems, validateList(a.Hard, at)...)
		for _, name := range slices.Sorted(maps.Keys(a.Hard)) {
			if _, ok := spec.Overall[name]; !ok {
				problems = append(problems, fmt.Errorf("%s[%s]: is not among spec.overall", at, name))
			}
		}
		sums = quotav1.Add(sums, a.Hard)
	}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		sum, overall := sums[name], spec.Overall[name]
		if _, ok := spec.Overall[name]; ok && quota.Divided(name) && sum.Cmp(overall) > 0 {
			problems = append(problems, fmt.Errorf("spec.staticAssignments: %s of %s are assigned, and spec.overall allows %s", sum.String(), name, overall.String()))
		}
	}
	return problems
}

func validateList(list corev1.ResourceList, path *field.Path) (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		at := path.Key(string(name))
		for _, err := range append(corevalidation.ValidateResourceQuotaResourceName(core.ResourceName(name), at),
			corevalidation.ValidateResourceQuantityValue(core.ResourceName(name), q, at)...) {
			problems = append(problems, err)
		}
	}
	return problems
}

// Desired is the ResourceQuota that stands for it in the control plane, made of
// what is there: labels and annotations of others stay.
func Desired(f *policyv1alpha1.FederatedResourceQuota, there *corev1.ResourceQuota) (*corev1.ResourceQuota, error) {
	out := &corev1.ResourceQuota{}
	if there != nil {
		out = there.DeepCopy()
	}
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}
	out.Namespace, out.Name = f.Namespace, f.Name
	if !metav1.IsControlledBy(out, f) {
		owner := metav1.NewControllerRef(f, policyv1alpha1.SchemeGroupVersion.WithKind(Kind))
		owner.BlockOwnerDeletion = nil
		out.OwnerReferences = append(out.OwnerReferences, *owner)
	}
	out.Spec = corev1.ResourceQuotaSpec{Hard: f.Spec.Overall}
	delete(out.Annotations, quota.Assignments)
	if len(f.Spec.StaticAssignments) > 0 {
		assigned := quota.Shares{}
		for _, a := range f.Spec.StaticAssignments {
			assigned[a.ClusterName] = a.Hard
		}
		text, err := json.Marshal(assigned)
		if err != nil {
			return nil, fmt.Errorf("assignments: %w", err)
		}
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, quota.Assignments, string(text))
	}
	return out, nil
}

// Status is what is in force and used: of the whole, as the endpoint counts it,
// and of each cluster that has limits of its own, as the cluster does. A cluster
// of which nothing is known now keeps what it showed before.
func Status(f *policyv1alpha1.FederatedResourceQuota, whole *corev1.ResourceQuota, members map[string]corev1.ResourceQuotaStatus) policyv1alpha1.FederatedResourceQuotaStatus {
	out := policyv1alpha1.FederatedResourceQuotaStatus{Overall: f.Spec.Overall, OverallUsed: quotav1.Mask(whole.Status.Used, quotav1.ResourceNames(f.Spec.Overall))}
	former := map[string]policyv1alpha1.ClusterQuotaStatus{}
	for _, s := range f.Status.AggregatedStatus {
		former[s.ClusterName] = s
	}
	for _, a := range f.Spec.StaticAssignments {
		s, ok := members[a.ClusterName]
		was, known := former[a.ClusterName]
		switch {
		case ok:
			names := quotav1.ResourceNames(a.Hard)
			out.AggregatedStatus = append(out.AggregatedStatus, policyv1alpha1.ClusterQuotaStatus{
				ClusterName:         a.ClusterName,
				ResourceQuotaStatus: corev1.ResourceQuotaStatus{Hard: quotav1.Mask(s.Hard, names), Used: quotav1.Mask(s.Used, names)},
			})
		case known:
			out.AggregatedStatus = append(out.AggregatedStatus, was)
		}
	}
	slices.SortFunc(out.AggregatedStatus, func(a, b policyv1alpha1.ClusterQuotaStatus) int { return cmp.Compare(a.ClusterName, b.ClusterName) })
	return out
}
