// Checks objects of Kubernetes without a cluster: by the code with which an API server admits pods, and by the types of
// the Prometheus operator.
//
//	kubernetes build FOLDER      prints what kustomize makes of FOLDER
//	kubernetes check < OBJECTS   prints a line for each thing that is wrong; the status is 1 then
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	strict "sigs.k8s.io/yaml"
)

func main() {
	wrong, err := run(os.Args[1:])
	for _, line := range wrong {
		fmt.Println(line)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || len(wrong) > 0 {
		os.Exit(1)
	}
}

func run(arguments []string) ([]string, error) {
	switch {
	case len(arguments) == 2 && arguments[0] == "build":
		return nil, build(arguments[1])
	case len(arguments) == 1 && arguments[0] == "check":
		return check(os.Stdin)
	}
	return nil, errors.New("usage: kubernetes build FOLDER, or kubernetes check")
}

func build(folder string) error {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return err
	}
	text, err := built.AsYaml()
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(text)
	return err
}

type template struct {
	ObjectMeta meta.ObjectMeta `json:"metadata"`
	Spec       core.PodSpec    `json:"spec"`
}

type object struct {
	Kind     string
	Metadata meta.ObjectMeta
	Spec     json.RawMessage
}

func check(objects io.Reader) ([]string, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	var wrong []string
	for decoder := yaml.NewYAMLOrJSONDecoder(objects, 4096); ; {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return wrong, nil
		} else if err != nil {
			return wrong, err
		}
		var found object
		if err := json.Unmarshal(raw, &found); err != nil {
			return wrong, err
		}
		name := found.Kind + " " + found.Metadata.Name
		if err := unknown(found.Kind, raw); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", name, err))
		}
		pods, err := found.pods()
		if err != nil {
			return wrong, err
		}
		for _, pod := range pods {
			for _, result := range evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec) {
				if !result.Allowed {
					wrong = append(wrong, fmt.Sprintf("%s: %s: %s", name, result.ForbiddenReason, result.ForbiddenDetail))
				}
			}
		}
	}
}

// unknown says which field an object of the Prometheus operator has that its type lacks.
func unknown(kind string, raw json.RawMessage) error {
	switch kind {
	case "PodMonitor":
		return strict.UnmarshalStrict(raw, &monitoring.PodMonitor{})
	case "PrometheusRule":
		return strict.UnmarshalStrict(raw, &monitoring.PrometheusRule{})
	}
	return nil
}

// pods returns the pods that come of an object.
func (found object) pods() ([]template, error) {
	var controller struct{ Template template }
	var schedule struct {
		JobTemplate struct{ Spec struct{ Template template } }
	}
	type application struct{ Driver, Executor struct{ Template template } }
	var spark application
	var scheduled struct{ Template application }
	pod := template{ObjectMeta: found.Metadata}
	switch found.Kind {
	case "Pod":
		err := json.Unmarshal(found.Spec, &pod.Spec)
		return []template{pod}, err
	case "Deployment":
		err := json.Unmarshal(found.Spec, &controller)
		return []template{controller.Template}, err
	case "CronJob":
		err := json.Unmarshal(found.Spec, &schedule)
		return []template{schedule.JobTemplate.Spec.Template}, err
	case "SparkApplication":
		err := json.Unmarshal(found.Spec, &spark)
		return []template{spark.Driver.Template, spark.Executor.Template}, err
	case "ScheduledSparkApplication":
		err := json.Unmarshal(found.Spec, &scheduled)
		return []template{scheduled.Template.Driver.Template, scheduled.Template.Executor.Template}, err
	}
	return nil, nil
}
