package intent

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func TestForbidden(t *testing.T) {
	const rbac = "rbac.authorization.k8s.io"
	ownedBy := func(kind string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: "web", Controller: new(true)}}
	}
	for _, c := range []struct {
		group, kind, ns, name string
		labels, annotations   map[string]string
		owners                []metav1.OwnerReference
		secretType            string
		want                  bool
	}{
		{group: "apps", kind: "Deployment", ns: "default", name: "web"},
		{group: "apps", kind: "Deployment", ns: "kube-system", name: "web", want: true},
		{group: "apps", kind: "Deployment", ns: "isthmus-system", name: "web", want: true},
		{group: "apps", kind: "Deployment", ns: "kubeflow", name: "web"},
		{group: "apps", kind: "ReplicaSet", ns: "default", name: "web"},
		{group: "apps", kind: "ReplicaSet", ns: "default", name: "web-1", owners: ownedBy("Deployment"), want: true},
		{group: "apps", kind: "ReplicaSet", ns: "default", name: "web-1", owners: ownedBy("Rollout")},
		{group: "apps", kind: "ReplicaSet", ns: "default", name: "web-1", annotations: map[string]string{"deployment.kubernetes.io/revision": "1"}, want: true},
		{kind: "ReplicationController", ns: "default", name: "web"},
		{kind: "ConfigMap", ns: "a", name: "kube-root-ca.crt", want: true},
		{kind: "ConfigMap", ns: "a", name: "settings"},
		{kind: "Service", ns: "default", name: "kubernetes", want: true},
		{kind: "Service", ns: "a", name: "kubernetes"},
		{kind: "Namespace", name: "kube-public", want: true},
		{kind: "Namespace", name: "default", want: true},
		{kind: "Namespace", name: "a"},
		{kind: "Secret", ns: "a", name: "s", secretType: "Opaque"},
		{kind: "Secret", ns: "a", name: "s", secretType: "kubernetes.io/service-account-token", want: true},
		{kind: "Secret", ns: "a", name: "s", secretType: "bootstrap.kubernetes.io/token", want: true},
		{kind: "ServiceAccount", ns: "a", name: "default", want: true},
		{kind: "ServiceAccount", ns: "a", name: "ci"},
		{group: rbac, kind: "ClusterRole", name: "cluster-admin", labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}, want: true},
		{group: rbac, kind: "ClusterRole", name: "system:node", want: true},
		{group: rbac, kind: "ClusterRole", name: "mine"},
		{group: "scheduling.k8s.io", kind: "PriorityClass", name: "system-node-critical", want: true},
		{group: "flowcontrol.apiserver.k8s.io", kind: "FlowSchema", name: "exempt", want: true},
		{group: "apiregistration.k8s.io", kind: "APIService", name: "v1.apps", want: true},
		{group: "coordination.k8s.io", kind: "Lease", ns: "a", name: "x", want: true},
		{group: "events.k8s.io", kind: "Event", ns: "a", name: "x", want: true},
		{group: "policy.karmada.io", kind: "PropagationPolicy", ns: "a", name: "x", want: true},
		{group: "cluster.karmada.io", kind: "Cluster", name: "x", want: true},
		{group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", name: "clusters.cluster.karmada.io", want: true},
		{group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", name: "foos.example.com"},
	} {
		meta := &metav1.ObjectMeta{Namespace: c.ns, Name: c.name, Labels: c.labels, Annotations: c.annotations, OwnerReferences: c.owners}
		why, got := Forbidden(schema.GroupKind{Group: c.group, Kind: c.kind}, meta, c.secretType)
		if got != c.want || got && why == "" {
			t.Errorf("%s %s/%s: forbidden = %v (%q)", c.kind, c.ns, c.name, got, why)
		}
	}
}

// TestImportedDefinition: what was copied from a member does not go back to it.
func TestImportedDefinition(t *testing.T) {
	gk := schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	for value, want := range map[string]bool{"true": true, "": false} {
		meta := &metav1.ObjectMeta{Name: "widgets.example.com", Annotations: map[string]string{"isthmus.dev/member-kind": value}}
		if _, got := Forbidden(gk, meta, ""); got != want {
			t.Errorf("annotation %q: forbidden %t, want %t", value, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	here := Template{Found: true, UID: "t"}
	deleting := Template{Found: true, UID: "t", Deleting: true, Finalizer: true}
	copied := Copy{Found: true, Ours: true, TemplateUID: "t"}
	toM1 := Binding{Found: true, Decided: true, TemplateUID: "t", Targets: []string{"m1"}}
	with := func(f func(*Binding)) Binding { b := toM1; f(&b); return b }
	for name, c := range map[string]struct {
		t    Template
		b    Binding
		c    Copy
		want Verdict
	}{
		"template deleted":                      {deleting, toM1, copied, Delete},
		"deleted, copies preserved":             {deleting, with(func(b *Binding) { b.Preserve = true }), copied, Release},
		"deleted, cascade orphan":               {Template{Found: true, UID: "t", Deleting: true, Finalizer: true, Orphan: true}, toM1, copied, Orphan},
		"cascade orphan, copies preserved":      {Template{Found: true, UID: "t", Deleting: true, Finalizer: true, Orphan: true}, with(func(b *Binding) { b.Preserve = true }), copied, Release},
		"absent, recorded with cascade orphan":  {Template{}, with(func(b *Binding) { b.DeletedTemplate, b.Orphan = "t", true }), copied, Orphan},
		"left out after a recorded orphaning":   {here, with(func(b *Binding) { b.Targets, b.Orphan = nil, true }), copied, Delete},
		"deleted, our finalizer gone":           {Template{Found: true, UID: "t", Deleting: true}, toM1, copied, Keep},
		"template absent":                       {Template{}, toM1, copied, Keep},
		"template and binding absent":           {Template{}, Binding{}, copied, Keep},
		"absent, recorded as deleted":           {Template{}, with(func(b *Binding) { b.DeletedTemplate = "t" }), copied, Delete},
		"absent, another one recorded":          {Template{}, with(func(b *Binding) { b.DeletedTemplate = "old" }), copied, Keep},
		"placement leaves the cluster out":      {here, with(func(b *Binding) { b.Targets = []string{"m2"} }), copied, Delete},
		"placement includes the cluster":        {here, toM1, copied, Keep},
		"placement of an earlier template":      {here, with(func(b *Binding) { b.Targets, b.TemplateUID = nil, "old" }), copied, Keep},
		"no decision yet":                       {here, with(func(b *Binding) { b.Targets, b.Decided = nil, false }), copied, Keep},
		"no binding":                            {here, Binding{}, copied, Keep},
		"foreign object":                        {deleting, toM1, Copy{Found: true}, Keep},
		"on hold":                               {deleting, toM1, Copy{Found: true, Ours: true, Held: true}, Keep},
		"template on hold, being deleted":       {Template{Found: true, UID: "t", Deleting: true, Finalizer: true, Held: true}, toM1, copied, Keep},
		"template on hold, left out":            {Template{Found: true, UID: "t", Held: true}, with(func(b *Binding) { b.Targets = []string{"m2"} }), copied, Keep},
		"copy of an earlier template, left out": {here, with(func(b *Binding) { b.Targets = nil }), Copy{Found: true, Ours: true, TemplateUID: "old"}, Delete},
	} {
		if got, why := Judge("m1", c.t, c.b, c.c); got != c.want || why == "" {
			t.Errorf("%s: %v (%s), want %v", name, got, why, c.want)
		}
	}
}

// Whatever the evidence: no deletion without a positive record of intent, and
// never of something that is not ours.
func TestNoDeletionWithoutIntent(t *testing.T) {
	uid := rapid.SampledFrom([]types.UID{"", "a", "b"})
	rapid.Check(t, func(t *rapid.T) {
		flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
		tpl := Template{Found: flag("found"), UID: uid.Draw(t, "uid"), Deleting: flag("deleting"), Finalizer: flag("finalizer"), Orphan: flag("orphan"), Held: flag("template held")}
		b := Binding{
			Found: flag("binding"), TemplateUID: uid.Draw(t, "buid"), Decided: flag("decided"), Preserve: flag("preserve"),
			DeletedTemplate: uid.Draw(t, "tomb"), Orphan: flag("orphan recorded"), Targets: rapid.SliceOf(rapid.SampledFrom([]string{"m1", "m2"})).Draw(t, "targets"),
		}
		c := Copy{Found: flag("copy"), Ours: flag("ours"), Held: flag("held"), TemplateUID: uid.Draw(t, "cuid")}
		v, why := Judge("m1", tpl, b, c)
		if v == Keep {
			return
		}
		byDeletion := tpl.Found && tpl.Deleting && tpl.Finalizer
		byPlacement := tpl.Found && !tpl.Deleting && b.Found && b.Decided && b.TemplateUID == tpl.UID
		for _, target := range b.Targets {
			byPlacement = byPlacement && target != "m1"
		}
		byRecord := !tpl.Found && b.Found && b.DeletedTemplate != "" && b.DeletedTemplate == c.TemplateUID
		if !c.Found || !c.Ours || c.Held || tpl.Held || !byDeletion && !byPlacement && !byRecord {
			t.Fatalf("%v because %q", v, why)
		}
	})
}
