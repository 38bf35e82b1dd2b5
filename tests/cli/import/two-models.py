from trl import SFTConfig
m = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
n = AutoModelForCausalLM.from_pretrained("gpt2")
args = SFTConfig(max_length=n)
