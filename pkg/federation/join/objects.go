package join

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	"github.com/isthmus-dev/isthmus/pkg/federation/membership"
)

// membershipRole owns every other object of ours in a member: deleting it
// makes the member's garbage collector remove them all, the one who asks for
// it included.
const membershipRole = "isthmus-membership"

// fieldManager is who writes our objects in a member and the credentials in
// the control plane.
const fieldManager = "isthmus-join"

// GroupResource names a kind whose data lives in the members.
type GroupResource struct{ Group, Resource string }

// Rights say what the identities in a member may do beyond the usual.
type Rights struct {
	// CustomGroups are the API groups whose custom resources are propagated.
	CustomGroups []string
	// MemberKinds are custom kinds that are read and written in the member.
	MemberKinds []GroupResource
	// ClusterRBAC allows propagating ClusterRoleBindings and any ClusterRole.
	ClusterRBAC bool
	// Fixed: the list of custom groups does not follow the control plane.
	Fixed bool
}

// MemberNamespace is the namespace of our identities.
func memberNamespace() *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.MemberNamespace, Labels: identityLabel("shared")},
	}
}

// rootRole is the object that owns the others.
func rootRole(r Rights) *rbacv1.ClusterRole {
	return clusterRole(membershipRole, "shared", membershipRules(r.Fixed))
}

// MemberObjects are the objects of ours in a member, namespace and root aside.
func MemberObjects(r Rights) []runtime.Object {
	read, apply := v1alpha1.ReadServiceAccount, v1alpha1.ApplyServiceAccount
	objects := []runtime.Object{
		clusterRole(read, "read", ReadRules(r.MemberKinds)),
		clusterRole(apply, "apply", ApplyRules(r.ClusterRBAC)),
		clusterRole(v1alpha1.CustomRole, "apply", membership.CustomRules(r.CustomGroups)),
		serviceAccount(read, "read"),
		serviceAccount(apply, "apply"),
		clusterRoleBinding(read, "read", read, read),
		clusterRoleBinding(apply, "apply", apply, apply),
		clusterRoleBinding(v1alpha1.CustomRole, "apply", v1alpha1.CustomRole, apply),
		clusterRoleBinding(membershipRole, "shared", membershipRole, apply),
	}
	for _, as := range []struct{ name, identity string }{{read, "read"}, {apply, "apply"}} {
		objects = append(objects, ownRole(as.name, as.identity), ownRoleBinding(as.name, as.identity))
	}
	return objects
}

func identityLabel(identity string) map[string]string {
	return map[string]string{v1alpha1.IdentityLabel: identity}
}

func rbacMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

func clusterRole(name, identity string, rules []rbacv1.PolicyRule) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   rbacMeta("ClusterRole"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: identityLabel(identity)},
		Rules:      rules,
	}
}

func serviceAccount(name, identity string) *corev1.ServiceAccount {
	no := false
	return &corev1.ServiceAccount{
		TypeMeta:                     metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta:                   metav1.ObjectMeta{Name: name, Namespace: v1alpha1.MemberNamespace, Labels: identityLabel(identity)},
		AutomountServiceAccountToken: &no,
	}
}

func subject(account string) []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.MemberNamespace, Name: account}}
}

func clusterRoleBinding(name, identity, role, account string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   rbacMeta("ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: identityLabel(identity)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   subject(account),
	}
}

// ownRole lets an identity renew its own token, and see what is in our own
// namespace before that is removed.
func ownRole(account, identity string) *rbacv1.Role {
	token := rule("", []string{"create"}, "serviceaccounts/token")
	token.ResourceNames = []string{account}
	rules := []rbacv1.PolicyRule{token}
	if identity == "apply" {
		rules = append(rules, rule("*", []string{"list"}, "*"))
	}
	return &rbacv1.Role{
		TypeMeta:   rbacMeta("Role"),
		ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: v1alpha1.MemberNamespace, Labels: identityLabel(identity)},
		Rules:      rules,
	}
}

func ownRoleBinding(account, identity string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta:   rbacMeta("RoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: v1alpha1.MemberNamespace, Labels: identityLabel(identity)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
		Subjects:   subject(account),
	}
}

// ValidateName checks the name of a Cluster before anything is created; the
// API checks it again.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > 48:
		return fmt.Errorf("%w: %q has %d characters, at most 48 are allowed", ErrInvalidName, name, len(name))
	case !nameShape.MatchString(name):
		return fmt.Errorf("%w: %q must consist of lower case letters, digits and dashes and begin and end with a letter or digit (no dots: the name is used as a suffix of object names)", ErrInvalidName, name)
	case len(name) >= len(v1alpha1.ApplySecretSuffix) && name[len(name)-len(v1alpha1.ApplySecretSuffix):] == v1alpha1.ApplySecretSuffix:
		return fmt.Errorf("%w: %q must not end in %s, which Secrets of the apply identity do", ErrInvalidName, name, v1alpha1.ApplySecretSuffix)
	}
	return nil
}
