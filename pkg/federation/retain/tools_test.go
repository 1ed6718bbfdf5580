package retain

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What would make a GitOps tool of a member take a copy for its own stays behind;
// what the object's users read travels.
func TestToolsMarksStayBehind(t *testing.T) {
	u := &unstructured.Unstructured{Object: parse(t, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"d",
"labels":{"app.kubernetes.io/instance":"shop","app.kubernetes.io/managed-by":"Helm","argocd.argoproj.io/secret-type":"cluster","argocd.argoproj.io/instance":"shop",
 "kustomize.toolkit.fluxcd.io/name":"shop","kustomize.toolkit.fluxcd.io/namespace":"flux","helm.toolkit.fluxcd.io/name":"r","applyset.kubernetes.io/part-of":"z","kapp.k14s.io/app":"1","objectset.rio.cattle.io/hash":"h"},
"annotations":{"note":"a","argocd.argoproj.io/tracking-id":"shop:v1/Secret:d/x","argocd.argoproj.io/sync-wave":"1","meta.helm.sh/release-name":"r","meta.helm.sh/release-namespace":"d",
 "config.k8s.io/owning-inventory":"i","objectset.rio.cattle.io/applied":"x","kustomize.toolkit.fluxcd.io/prune":"disabled"}}}`)}
	Strip(u)
	if want := map[string]string{
		"app.kubernetes.io/instance": "shop", "app.kubernetes.io/managed-by": "Helm", "argocd.argoproj.io/secret-type": "cluster",
	}; !reflect.DeepEqual(u.GetLabels(), want) {
		t.Errorf("labels: %v", u.GetLabels())
	}
	if want := map[string]string{
		"note": "a", "argocd.argoproj.io/sync-wave": "1", "kustomize.toolkit.fluxcd.io/prune": "disabled",
	}; !reflect.DeepEqual(u.GetAnnotations(), want) {
		t.Errorf("annotations: %v", u.GetAnnotations())
	}
}
