package main

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// invocation is a program and the flags that a manifest gives it.
type invocation struct {
	where, program string
	flags          []string
}

// decode reads every document strictly.
func decode(text []byte) ([]runtime.Object, error) {
	var objects []runtime.Object
	for n, doc := range bytes.Split(text, []byte("\n---\n")) {
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			return nil, fmt.Errorf("document %d: %w", n+1, err)
		}
		obj, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(meta.APIVersion, meta.Kind))
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", n+1, err)
		}
		if err := yaml.UnmarshalStrict(doc, obj); err != nil {
			return nil, fmt.Errorf("document %d, %s: %w", n+1, meta.Kind, err)
		}
		objects = append(objects, obj)
	}
	if len(objects) == 0 {
		return nil, errors.New("no manifest was rendered")
	}
	return objects, nil
}

// inspect judges the workloads and returns how they start the programs.
func inspect(objects []runtime.Object) ([]invocation, error) {
	checks, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, fmt.Errorf("pod security: %w", err)
	}
	var invocations []invocation
	for _, obj := range objects {
		var name string
		var selector *metav1.LabelSelector
		var template *corev1.PodTemplateSpec
		switch o := obj.(type) {
		case *appsv1.Deployment:
			name, selector, template = "Deployment "+o.Name, o.Spec.Selector, &o.Spec.Template
		case *appsv1.StatefulSet:
			name, selector, template = "StatefulSet "+o.Name, o.Spec.Selector, &o.Spec.Template
		default:
			if obj.GetObjectKind().GroupVersionKind().Group == rbacv1.GroupName {
				return nil, fmt.Errorf("a %T gives rights in the hosting cluster, where the programs need none", obj)
			}
			continue
		}
		if mounts := template.Spec.AutomountServiceAccountToken; mounts == nil || *mounts {
			return nil, fmt.Errorf("%s mounts a token of the hosting cluster, where the programs need none", name)
		}
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return nil, fmt.Errorf("%s: selector: %w", name, err)
		}
		if !s.Matches(labels.Set(template.Labels)) {
			return nil, fmt.Errorf("%s does not select its own Pods", name)
		}
		level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
		verdict := policy.AggregateCheckResults(checks.EvaluatePod(level, &template.ObjectMeta, &template.Spec))
		if !verdict.Allowed {
			return nil, fmt.Errorf("%s is not restricted: %s", name, verdict.ForbiddenDetail())
		}
		for i := range template.Spec.Containers {
			c := &template.Spec.Containers[i]
			if len(c.Command) == 0 {
				return nil, fmt.Errorf("%s: container %s names no command", name, c.Name)
			}
			invocations = append(invocations, invocation{name, path.Base(c.Command[0]), flagsOf(slices.Concat(c.Command[1:], c.Args))})
		}
	}
	if len(invocations) == 0 {
		return nil, errors.New("no workload is among the manifests")
	}
	return invocations, nil
}

// flagsOf are the names of the flags among arguments.
func flagsOf(args []string) []string {
	var names []string
	for _, a := range args {
		if name, ok := strings.CutPrefix(a, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			names = append(names, name)
		}
	}
	return names
}

// execStart reads how a systemd unit starts its program.
func execStart(unit, text string) (invocation, error) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=")
		if !ok {
			continue
		}
		fields := strings.Fields(command)
		if len(fields) == 0 {
			break
		}
		return invocation{unit, path.Base(fields[0]), flagsOf(fields[1:])}, nil
	}
	return invocation{}, fmt.Errorf("%s starts nothing", unit)
}

// unknownFlags names the flags that the program's help does not.
func (i invocation) unknownFlags(help string) error {
	if help == "" {
		return nil
	}
	var faults []error
	for _, f := range i.flags {
		if !regexp.MustCompile(`(?m)(^|[\s,])--?` + regexp.QuoteMeta(f) + `([\s=\[,]|$)`).MatchString(help) {
			faults = append(faults, fmt.Errorf("%s: %s has no flag --%s", i.where, i.program, f))
		}
	}
	return errors.Join(faults...)
}
