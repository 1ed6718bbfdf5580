package kinds

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const volumeAndClaim = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: VOLUME}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /tmp}
  storageClassName: ""
  claimRef: {namespace: NS, name: data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  volumeName: VOLUME
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: db}
spec:
  containers: [{name: db, image: db, volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// Claims and volumes of two clusters that have the same names: each Pod, claim
// and volume leads to its own, and a write that names what was read goes through.
func TestSameClaimInTwoClusters(t *testing.T) {
	t.Parallel()
	ns := namespaceEverywhere(t)
	volume := labtest.UniqueName(t, "pv")
	manifest := strings.NewReplacer("NS", ns, "VOLUME", volume).Replace(volumeAndClaim)
	for _, name := range []string{"m1", "m2"} {
		m := world.Member(name)
		apply(t, m.Kubeconfig(), ns, manifest)
		t.Cleanup(func() {
			labtest.Kubectl(t, m.Kubeconfig(), "", "delete", "pv", volume, "--wait=false")
		})
		labtest.Eventually(t, 60*time.Second, func(ctx context.Context) error {
			claim, err := member(t, name).CoreV1().PersistentVolumeClaims(ns).Get(ctx, "data", metav1.GetOptions{})
			if err == nil && claim.Status.Phase != corev1.ClaimBound {
				err = fmt.Errorf("claim is %s", claim.Status.Phase)
			}
			return err
		})
	}
	core := endpoint(t).CoreV1()
	for cluster, suffix := range map[string]string{"m1": "", "m2": ".m2"} {
		labtest.Eventually(t, 20*time.Second, func(ctx context.Context) error {
			pod, err := core.Pods(ns).Get(ctx, "db"+suffix, metav1.GetOptions{})
			if err != nil {
				return err
			}
			claim, err := core.PersistentVolumeClaims(ns).Get(ctx, pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("the Pod's claim: %w", err)
			}
			pv, err := core.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("the claim's volume: %w", err)
			}
			if as(claim) != "data"+suffix+"@"+cluster || as(pv) != volume+suffix+"@"+cluster || claim.Status.Phase != corev1.ClaimBound {
				return fmt.Errorf("db%s leads to %s (%s), %s", suffix, as(claim), claim.Status.Phase, as(pv))
			}
			if ref := pv.Spec.ClaimRef; ref.Name != claim.Name || ref.UID != claim.UID {
				return fmt.Errorf("%s leads back to %s %s", pv.Name, ref.Name, ref.UID)
			}
			return nil
		})
	}
	// The member's volume controller writes the claim as well.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		claim, err := core.PersistentVolumeClaims(ns).Get(t.Context(), "data.m2", metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim.Annotations["seen"] = "yes"
		_, err = core.PersistentVolumeClaims(ns).Update(t.Context(), claim, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Errorf("update of a claim as it was read: %v", err)
	}
	patch := fmt.Appendf(nil, `{"spec":{"volumeName":%q},"metadata":{"annotations":{"seen":"twice"}}}`, volume+".m2")
	if _, err := core.PersistentVolumeClaims(ns).Patch(t.Context(), "data.m2", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Errorf("patch of a claim with the volume as it was read: %v", err)
	}
	own, err := member(t, "m2").CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data", metav1.GetOptions{})
	if err != nil || own.Annotations["seen"] != "twice" || own.Spec.VolumeName != volume {
		t.Errorf("in m2: %v %v, volume %s", err, own.Annotations, own.Spec.VolumeName)
	}
	res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "-n", ns, "describe", "pod", "db.m2")
	if res.Code != 0 || !strings.Contains(res.Out, "data.m2") {
		t.Errorf("describe: %+v", res)
	}
}

func claimNames(t *testing.T, ns string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		list, err := endpoint(t).CoreV1().PersistentVolumeClaims(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		var names []string
		for i := range list.Items {
			names = append(names, as(&list.Items[i]))
		}
		return names, nil
	}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}
	return c
}

// A dual kind: templates and the members' own objects in one list; the control
// plane has the bare name, a create over a member's object is a conflict unless
// adoption is asked for, and writes go to whoever has the object.
func TestDualKind(t *testing.T) {
	t.Parallel()
	ns := namespaceEverywhere(t)
	claims := endpoint(t).CoreV1().PersistentVolumeClaims(ns)
	for _, name := range []string{"m1", "m2"} {
		if _, err := member(t, name).CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), newClaim("own"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := claims.Create(t.Context(), newClaim("template"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want(t, []string{"own.m2@m2", "own@m1", "template@"}, claimNames(t, ns))

	_, err := claims.Create(t.Context(), newClaim("own"), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		t.Errorf("create over a member's object: %v, want AlreadyExists", err)
	}
	if _, err := claims.Patch(t.Context(), "own", types.MergePatchType, []byte(`{"metadata":{"labels":{"written":"here"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("patch of a member's object: %v", err)
	}
	got, err := member(t, "m1").CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil || got.Labels["written"] != "here" {
		t.Errorf("in m1: %v %v", err, got.Labels)
	}

	adopting := newClaim("own")
	adopting.Annotations = map[string]string{"work.karmada.io/conflict-resolution": "overwrite"}
	made, err := claims.Create(t.Context(), adopting, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create that asks for adoption: %v", err)
	}
	want(t, []string{"own.m1@m1", "own.m2@m2", "own@", "template@"}, claimNames(t, ns))
	if got, err := claims.Get(t.Context(), "own", metav1.GetOptions{}); err != nil || got.UID != made.UID {
		t.Errorf("the bare name: %v %s, want the template's %s", err, got.UID, made.UID)
	}
	if err := claims.Delete(t.Context(), "own.m2", metav1.DeleteOptions{}); err != nil {
		t.Errorf("delete of a member's object: %v", err)
	}
	want(t, []string{"own.m1@m1", "own@", "template@"}, claimNames(t, ns))
	if _, err := member(t, "m2").CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "own", metav1.GetOptions{}); !isNotFound(err) {
		t.Errorf("in m2: %v, want NotFound", err)
	}
}

// The control plane's own controllers keep seeing the control plane only: the
// end of a namespace there takes no member's object that is not managed.
func TestLoopbackSeesTemplatesOnly(t *testing.T) {
	t.Parallel()
	admin := world.System.Kubeconfig()
	ns := labtest.UniqueName(t, "loopback")
	labtest.MustKubectl(t, world.Member("m1").Kubeconfig(), "", "create", "namespace", ns)
	t.Cleanup(func() {
		labtest.Kubectl(t, world.Member("m1").Kubeconfig(), "", "delete", "namespace", ns, "--wait=false")
	})
	if _, err := member(t, "m1").CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), newClaim("own"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labtest.MustKubectl(t, admin, "", "create", "namespace", ns)
	want(t, []string{"own@m1"}, claimNames(t, ns))
	if _, err := endpoint(t).CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), newClaim("template"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	labtest.MustKubectl(t, admin, "", "delete", "namespace", ns, "--timeout=150s")
	want(t, []string{"own@m1"}, claimNames(t, ns))
	claim, err := member(t, "m1").CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "own", metav1.GetOptions{})
	if err != nil || claim.DeletionTimestamp != nil {
		t.Errorf("m1's own claim: %v, deleted at %v", err, claim.DeletionTimestamp)
	}
}
