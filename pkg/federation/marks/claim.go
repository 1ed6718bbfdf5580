package marks

// A claim is what a binding, and as its mirror the template, says of the policy
// that it follows. Policies carry the same label with their own id.
const (
	NamespacePolicyID        = "propagationpolicy.karmada.io/permanent-id"
	ClusterPolicyID          = "clusterpropagationpolicy.karmada.io/permanent-id"
	NamespacePolicyName      = "propagationpolicy.karmada.io/name"
	NamespacePolicyNamespace = "propagationpolicy.karmada.io/namespace"
	ClusterPolicyName        = "clusterpropagationpolicy.karmada.io/name"
)

// ClaimLabels and ClaimAnnotations are the keys of claims.
var (
	ClaimLabels      = []string{NamespacePolicyID, ClusterPolicyID}
	ClaimAnnotations = []string{NamespacePolicyName, NamespacePolicyNamespace, ClusterPolicyName}
)

// Claim are the labels and annotations of a claim by the policy with this id; a
// cluster policy has no namespace.
func Claim(namespace, name, id string) (labels, annotations map[string]string) {
	if namespace != "" {
		return map[string]string{NamespacePolicyID: id}, map[string]string{NamespacePolicyName: name, NamespacePolicyNamespace: namespace}
	}
	return map[string]string{ClusterPolicyID: id}, map[string]string{ClusterPolicyName: name}
}
