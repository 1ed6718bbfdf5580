package taints

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
	policyv1alpha1 "github.com/isthmus-dev/isthmus/pkg/federation/apis/policy/v1alpha1"
)

func cluster(ready metav1.ConditionStatus, reason string, taints ...corev1.Taint) *clusterv1alpha1.Cluster {
	c := &clusterv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: clusterv1alpha1.ClusterSpec{Region: "eu", Taints: taints}}
	if ready != "" {
		c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready, Reason: reason}}
	}
	return c
}

func show(taints []corev1.Taint) string {
	out := make([]string, 0, len(taints))
	for _, t := range taints {
		s := t.ToString()
		if t.TimeAdded != nil {
			s += "@" + t.TimeAdded.UTC().Format("05")
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func TestDecide(t *testing.T) {
	const gpu = `{targetClusters: {clusterNames: [m1]}, addOnConditions: [{conditionType: GPU, operator: In, statusValues: ["False", Unknown]}], removeOnConditions: [{conditionType: GPU, operator: In, statusValues: ["True"]}], taints: [{key: gpu, effect: NoExecute, value: broken}]}`
	now := time.Date(2026, 1, 1, 0, 0, 7, 5, time.UTC)
	earlier := &metav1.Time{Time: now.Add(-4 * time.Second)}
	withGPU := func(status metav1.ConditionStatus, taints ...corev1.Taint) *clusterv1alpha1.Cluster {
		c := cluster("True", "ClusterReady", taints...)
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: "GPU", Status: status})
		return c
	}
	broken := corev1.Taint{Key: "gpu", Value: "broken", Effect: corev1.TaintEffectNoExecute, TimeAdded: earlier}
	own := corev1.Taint{Key: "own", Effect: corev1.TaintEffectNoSchedule}
	for name, c := range map[string]struct {
		cluster *clusterv1alpha1.Cluster
		policy  string
		want    string
		changed bool
		err     string
	}{
		"nobody has looked yet":          {cluster("", ""), "", "", false, ""},
		"ready":                          {cluster("True", "ClusterReady"), "", "", false, ""},
		"not ready":                      {cluster("False", "ClusterNotReady"), "", "cluster.karmada.io/not-ready:NoSchedule@07", true, ""},
		"unreachable":                    {cluster("False", "ClusterNotReachable"), "", "cluster.karmada.io/unreachable:NoSchedule@07", true, ""},
		"unknown":                        {cluster("Unknown", ""), "", "cluster.karmada.io/unreachable:NoSchedule@07", true, ""},
		"from one to the other":          {cluster("False", "ClusterNotReady", corev1.Taint{Key: Unreachable, Effect: "NoSchedule"}, own), "", "own:NoSchedule cluster.karmada.io/not-ready:NoSchedule@07", true, ""},
		"ready again":                    {cluster("True", "ClusterReady", corev1.Taint{Key: NotReady, Effect: "NoSchedule"}, own), "", "own:NoSchedule", true, ""},
		"already tainted, its time kept": {cluster("False", "ClusterNotReady", corev1.Taint{Key: NotReady, Effect: "NoSchedule", TimeAdded: earlier}), "", "cluster.karmada.io/not-ready:NoSchedule@03", false, ""},
		"somebody's NoExecute is dated":  {cluster("True", "", corev1.Taint{Key: "k", Effect: "NoExecute"}, own), "", "k:NoExecute@07 own:NoSchedule", true, ""},
		"a policy adds":                  {withGPU("False"), gpu, "gpu=broken:NoExecute@07", true, ""},
		"a condition that is not there":  {cluster("True", ""), gpu, "gpu=broken:NoExecute@07", true, ""},
		"once":                           {withGPU("False", broken), gpu, "gpu=broken:NoExecute@03", false, ""},
		"and removes":                    {withGPU("True", own, broken), gpu, "own:NoSchedule", true, ""},
		"nothing else":                   {withGPU("True", own), gpu, "own:NoSchedule", false, ""},
		"another value":                  {withGPU("False", corev1.Taint{Key: "gpu", Value: "slow", Effect: "NoExecute", TimeAdded: earlier}), gpu, "gpu=broken:NoExecute@03", true, ""},
		"not its cluster":                {withGPU("False"), strings.Replace(gpu, "[m1]", "[m2]", 1), "", false, ""},
		"by region":                      {withGPU("False"), strings.Replace(gpu, "clusterNames: [m1]", "fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}", 1), "gpu=broken:NoExecute@07", true, ""},
		"all conditions must hold":       {withGPU("False"), `{addOnConditions: [{conditionType: GPU, operator: In, statusValues: ["False"]}, {conditionType: Ready, operator: NotIn, statusValues: ["True"]}], taints: [{key: gpu, effect: NoSchedule}]}`, "", false, ""},
		"no condition never adds":        {withGPU("False"), `{taints: [{key: gpu, effect: NoSchedule}]}`, "", false, ""},
		"only to be taken away":          {withGPU("False"), `{removeOnConditions: [{conditionType: GPU, operator: In, statusValues: ["True"]}], taints: [{key: gpu, effect: NoSchedule}]}`, "", false, ""},
		"removing comes last":            {withGPU("False"), `{addOnConditions: [{conditionType: GPU, operator: In, statusValues: ["False"]}], removeOnConditions: [{conditionType: GPU, operator: In, statusValues: ["False"]}], taints: [{key: gpu, effect: NoSchedule}]}`, "", false, ""},
		"a policy that makes no sense":   {cluster("False", "ClusterNotReady"), `{targetClusters: {fieldSelector: {matchExpressions: [{key: color, operator: In}]}}, taints: [{key: gpu, effect: NoSchedule}]}`, "cluster.karmada.io/not-ready:NoSchedule@07", true, "color"},
	} {
		var policies []policyv1alpha1.ClusterTaintPolicy
		if c.policy != "" {
			p := policyv1alpha1.ClusterTaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			if err := yaml.UnmarshalStrict([]byte(c.policy), &p.Spec); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			policies = append(policies, p)
		}
		before := show(c.cluster.Spec.Taints)
		taints, changed, err := Decide(c.cluster, policies, now)
		if got := show(taints); got != c.want || changed != c.changed || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q changed %v, %v", name, got, changed, err)
		}
		if show(c.cluster.Spec.Taints) != before {
			t.Errorf("%s: the Cluster itself was changed", name)
		}
		c.cluster.Spec.Taints = taints
		if _, again, _ := Decide(c.cluster, policies, now.Add(time.Minute)); again {
			t.Errorf("%s: decided otherwise a minute later", name)
		}
	}
}
