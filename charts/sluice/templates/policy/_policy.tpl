{{/* Parts that the admission policies share. The API server evaluates the policies itself, so they hold even while no process of Sluice runs. */}}

{{/* include "sluice.userName" (dict "root" $ "component" "scheduler"): the user name of its service account */}}
{{- define "sluice.userName" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "sluice.serviceAccountName" . }}
{{- end }}

{{/* include "sluice.policyMetadata" (dict "root" $ "name" "assignment") */}}
{{- define "sluice.policyMetadata" -}}
name: {{ include "sluice.fullname" .root }}-{{ .name }}
labels:
  {{- include "sluice.labels" (dict "root" .root "component" "policy") | nindent 2 }}
{{- end }}

{{/* include "sluice.policyBinding" (dict "root" $ "name" "assignment" "action" "Warn"): denies if no action is named */}}
{{- define "sluice.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "sluice.policyMetadata" . | nindent 2 }}
spec:
  policyName: {{ include "sluice.fullname" .root }}-{{ .name }}
  validationActions: [{{ .action | default "Deny" }}]
{{- end }}
