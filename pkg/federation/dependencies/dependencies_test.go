package dependencies

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const pod = `
serviceAccountName: runner
imagePullSecrets: [{name: pull}, {name: ""}]
initContainers:
- name: i
  envFrom: [{configMapRef: {name: cm-from}}, {secretRef: {name: s-from}}]
containers:
- name: c
  env:
  - {name: PLAIN, value: x}
  - {name: A, valueFrom: {configMapKeyRef: {name: cm-key, key: a}}}
  - {name: B, valueFrom: {secretKeyRef: {name: s-key, key: b}}}
  - {name: A2, valueFrom: {configMapKeyRef: {name: cm-key, key: a2}}}
  - {name: P, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
volumes:
- {name: v1, configMap: {name: cm-vol}}
- {name: v2, secret: {secretName: s-vol}}
- {name: v3, persistentVolumeClaim: {claimName: data}}
- {name: v4, projected: {sources: [{configMap: {name: cm-proj}}, {secret: {name: s-proj}}, {serviceAccountToken: {path: t}}]}}
- {name: v5, emptyDir: {}}
- {name: v6, csi: {driver: d, nodePublishSecretRef: {name: s-csi}}}
`

func indent(s, by string) string {
	return by + strings.ReplaceAll(s, "\n", "\n"+by)
}

func TestOf(t *testing.T) {
	want := []Ref{
		{Kind: "ConfigMap", Name: "cm-from"},
		{Kind: "ConfigMap", Name: "cm-key"},
		{Kind: "ConfigMap", Name: "cm-proj"},
		{Kind: "ConfigMap", Name: "cm-vol"},
		{Kind: "PersistentVolumeClaim", Name: "data"},
		{Kind: "Secret", Name: "pull"},
		{Kind: "Secret", Name: "s-csi"},
		{Kind: "Secret", Name: "s-from"},
		{Kind: "Secret", Name: "s-key"},
		{Kind: "Secret", Name: "s-proj"},
		{Kind: "Secret", Name: "s-vol"},
		{Kind: "ServiceAccount", Name: "runner"},
	}
	for name, c := range map[string]struct {
		doc  string
		want []Ref
	}{
		"Deployment":                   {"spec:\n  template:\n    spec:\n" + indent(pod, "      "), want},
		"CronJob":                      {"spec:\n  jobTemplate:\n    spec:\n      template:\n        spec:\n" + indent(pod, "          "), want},
		"ConfigMap":                    {"data: {a: b}", nil},
		"the default account is there": {"spec: {template: {spec: {serviceAccountName: default, containers: [{name: c}]}}}", []Ref{}},
	} {
		raw, err := yaml.YAMLToJSON([]byte(c.doc))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Of(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := Of([]byte(`{"spec":{"template":"text"}}`)); err == nil {
		t.Error("a broken template has no error")
	}
}
