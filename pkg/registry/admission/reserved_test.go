package admission

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/networking"
)

func TestReservedIn(t *testing.T) {
	reserved := map[string]string{"isthmus.dev/cluster": "m1"}
	plain := map[string]string{"app": "web"}
	expression := []metav1.LabelSelectorRequirement{{Key: "isthmus.dev/cluster", Operator: metav1.LabelSelectorOpExists}}
	tests := []struct {
		name   string
		object runtime.Object
		want   string
	}{
		{name: "plain", object: &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: plain}}},
		{name: "own label", object: &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: reserved}}, want: "metadata.labels"},
		{name: "pod template", object: &apps.Deployment{Spec: apps.DeploymentSpec{Template: core.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: reserved}}}}, want: "spec.template.metadata.labels"},
		{name: "selector", object: &apps.StatefulSet{Spec: apps.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: reserved}}}, want: "spec.selector.matchLabels"},
		{name: "expression", object: &apps.DaemonSet{Spec: apps.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchExpressions: expression}}}, want: "spec.selector.matchExpressions[0]"},
		{name: "service", object: &core.Service{Spec: core.ServiceSpec{Selector: reserved}}, want: "spec.selector"},
		{name: "plain service", object: &core.Service{Spec: core.ServiceSpec{Selector: plain}}},
		{name: "network policy", object: &networking.NetworkPolicy{Spec: networking.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: reserved}}}, want: "spec.podSelector.matchLabels"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if path := reservedIn(tt.object); path != nil {
				got = path.String()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
