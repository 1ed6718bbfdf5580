package join

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

func TestLiveClusterValidation(t *testing.T) {
	f := newFleet(t)
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Cluster)
		says   string // "" is accepted
	}{
		"plain":        {func(*v1alpha1.Cluster) {}, ""},
		"dots":         {func(c *v1alpha1.Cluster) { c.Name = "a.b" }, "without dots"},
		"long":         {func(c *v1alpha1.Cluster) { c.Name = strings.Repeat("a", 49) }, "48 characters"},
		"apply suffix": {func(c *v1alpha1.Cluster) { c.Name = "m1-apply" }, "-apply"},
		"pull":         {func(c *v1alpha1.Cluster) { c.Spec.SyncMode = v1alpha1.Pull }, "syncMode Pull is not supported"},
		"foreign secret": {func(c *v1alpha1.Cluster) {
			c.Spec.SecretRef = &v1alpha1.LocalSecretReference{Namespace: "default", Name: "x"}
		}, "isthmus-system"},
		"plain http":   {func(c *v1alpha1.Cluster) { c.Spec.APIEndpoint = "http://x" }, "https"},
		"proxy header": {func(c *v1alpha1.Cluster) { c.Spec.ProxyHeader = map[string]string{"a": "b"} }, "proxyURL"},
		"resource models": {func(c *v1alpha1.Cluster) {
			c.Spec.ResourceModels = []v1alpha1.ResourceModel{{Ranges: []v1alpha1.ResourceModelRange{}}}
		}, "resourceModels is not supported"},
		"zones and taints": {func(c *v1alpha1.Cluster) {
			c.Spec.Zones = []string{"a"}
			c.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "validated"}}
			tc.change(c)
			made, err := f.clusters.Create(t.Context(), c, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if (err == nil) != (tc.says == "") || (err != nil && !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("err = %v, want it to say %q", err, tc.says)
			}
			if err == nil && made.Spec.SyncMode != v1alpha1.Push {
				t.Errorf("syncMode = %q", made.Spec.SyncMode)
			}
		})
	}
}

// TestLiveUnjoinKeepsWhatIsNotOurs unjoins a member that holds a managed copy,
// a clone of its marks and a foreign object in our namespace.
func TestLiveUnjoinKeepsWhatIsNotOurs(t *testing.T) {
	f := newFleet(t)
	admin := kubernetes.NewForConfigOrDie(liveConfig(t, "m2"))
	if _, err := f.join(t, "m2", "m2", nil); err != nil {
		t.Fatal(err)
	}
	put := func(ns, name string, marks bool) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"keep": "me"}}}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		if marks {
			d.Labels[managedLabel] = "true"
			d.Annotations = map[string]string{templateAnnotation: "apps/v1/Deployment/default/copy", "isthmus.dev/epoch": "1", "other": "stays"}
		}
		if err := admin.AppsV1().Deployments(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if _, err := admin.AppsV1().Deployments(ns).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.AppsV1().Deployments(ns).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Log(err)
			}
		})
	}
	put("default", "copy", true)
	put("default", "clone", true)
	put("default", "own", false)
	foreign := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.MemberNamespace, Name: "foreign"}}
	if _, err := admin.CoreV1().ConfigMaps(foreign.Namespace).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	before, err := admin.AppsV1().Deployments("default").Get(t.Context(), "copy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.unjoin(t, "m2", nil)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "1 managed copies lost their marks") {
		t.Errorf("output %s", out)
	}
	after, err := admin.AppsV1().Deployments("default").Get(t.Context(), "copy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if after.UID != before.UID || after.Labels[managedLabel] != "" || after.Labels["keep"] != "me" ||
		after.Annotations[templateAnnotation] != "" || after.Annotations["isthmus.dev/epoch"] != "" || after.Annotations["other"] != "stays" {
		t.Errorf("copy after the unjoin: %v %v", after.Labels, after.Annotations)
	}
	if clone, err := admin.AppsV1().Deployments("default").Get(t.Context(), "clone", metav1.GetOptions{}); err != nil || clone.Labels[managedLabel] != "true" {
		t.Errorf("the clone was touched: %v, %v", clone.Labels, err)
	}
	time.Sleep(2 * time.Second) // the namespace controller would have been at work
	if _, err := admin.CoreV1().ConfigMaps(foreign.Namespace).Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the foreign ConfigMap: %v", err)
	}
	if _, err := admin.CoreV1().ServiceAccounts(v1alpha1.MemberNamespace).Get(t.Context(), v1alpha1.ApplyServiceAccount, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("our ServiceAccount: %v", err)
	}
	if err := admin.CoreV1().Namespaces().Delete(t.Context(), v1alpha1.MemberNamespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the namespace is gone", func() bool {
		_, err := admin.CoreV1().Namespaces().Get(t.Context(), v1alpha1.MemberNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestLiveUnjoinOfADeadMember loses the way to a member and takes it out.
func TestLiveUnjoinOfADeadMember(t *testing.T) {
	f := newFleet(t)
	// Interrupted: everything in the member and one Secret, but no Cluster.
	if _, err := f.join(t, "m2", "m2", func(r *Request) { r.Wait = 0 }); err != nil {
		t.Fatal(err)
	}
	if err := f.clusters.Delete(t.Context(), "m2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := f.kube.CoreV1().Secrets(v1alpha1.CredentialsNamespace).Delete(t.Context(), "m2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.join(t, "m2", "m2", nil); err != nil {
		t.Fatalf("the join repeated: %v", err)
	}
	if _, err := f.clusters.Patch(t.Context(), "m2", "application/merge-patch+json", []byte(`{"spec":{"apiEndpoint":"https://127.0.0.1:1"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.unjoin(t, "m2", nil); !errors.Is(err, ErrMemberLeftover) {
		t.Errorf("without force: %v", err)
	}
	if _, err := f.clusters.Get(t.Context(), "m2", metav1.GetOptions{}); err != nil {
		t.Errorf("the Cluster after a refused unjoin: %v", err)
	}
	began := time.Now()
	out, err := f.unjoin(t, "m2", func(r *UnjoinRequest) { r.Force = true; r.Timeout = 3 * time.Second })
	if err != nil || !strings.Contains(out, "left in it") {
		t.Errorf("with force: %q, %v", out, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	// The member is back: an administrator's kubeconfig finishes the job.
	if _, err := f.unjoin(t, "m2", func(r *UnjoinRequest) { r.Member = liveConfig(t, "m2") }); err != nil {
		t.Fatal(err)
	}
	admin := kubernetes.NewForConfigOrDie(liveConfig(t, "m2"))
	roles, err := admin.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.IdentityLabel})
	if err != nil || len(roles.Items) != 0 {
		t.Errorf("%d ClusterRoles of ours left, %v", len(roles.Items), err)
	}
	eventually(t, 30*time.Second, "the namespace is gone", func() bool {
		_, err := admin.CoreV1().Namespaces().Get(t.Context(), v1alpha1.MemberNamespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
